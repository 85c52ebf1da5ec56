//! Providers of machines, one module each; BMCs behind one pair of traits.

pub mod bmc;
pub mod fake;
pub mod ipmi;
pub mod lxd;
pub mod maas;
pub mod openchami;
mod pin;
pub mod redfish;
