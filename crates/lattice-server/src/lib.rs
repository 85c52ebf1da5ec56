//! Process, configuration, authentication, HTTP, SSE, web page.

pub mod agent_api;
pub mod pki;
