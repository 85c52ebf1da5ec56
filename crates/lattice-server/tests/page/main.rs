//! The web page: rendered pages as goldens, and the page in a real browser.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod browser;
mod chrome;
mod fleet;
mod golden;
mod server;
mod wipes;
mod work;
