//! The machines of a simulated site: what they are made of and what they do once a system is installed.

pub mod hardware;
pub mod population;
