//! Providers of machines, one module each.

pub mod fake;
pub mod lxd;
pub mod maas;
