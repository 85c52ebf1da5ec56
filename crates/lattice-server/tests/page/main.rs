//! The web page: rendered pages as goldens, and the page in a real browser.

mod browser;
mod chrome;
mod fleet;
mod golden;
mod server;
