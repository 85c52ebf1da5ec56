//! Providers of machines, one module each.

pub mod lxd;
pub mod maas;
