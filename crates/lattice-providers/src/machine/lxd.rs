//! LXD 5.0 over HTTPS with a client certificate: containers as nodes. spec: S5 10

pub mod client;
mod operation;
mod provider;
pub mod tls;
mod wire;

pub use client::{LxdClient, LxdSettings};
pub use tls::LxdCredentials;
