//! Process, configuration, authentication, HTTP, SSE, web page.

pub mod pki;
