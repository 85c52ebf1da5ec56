//! A BMC by IPMI 2.0: `ipmitool` as a child process, the well-kept path to every cipher suite.

mod control;
mod sensors;
mod tool;

pub use tool::{IpmiClient, IpmiSettings};
