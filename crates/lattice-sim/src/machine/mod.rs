//! The machines of a simulated site: what they are made of and what they do once a system is installed.

pub mod agent;
pub mod cloud_config;
mod command;
pub mod hands;
pub mod hardware;
pub mod population;
pub mod real_agent;
pub mod runner;
mod ssh;
pub mod system;
