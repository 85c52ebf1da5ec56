//! MAAS.
