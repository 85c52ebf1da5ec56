//! Providers of machines, one module each.

pub mod maas;
