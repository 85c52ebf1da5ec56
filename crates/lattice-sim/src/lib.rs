//! Simulated sites and machines over the real protocols, with faults on request.

pub mod bmc;
pub mod clock;
pub mod dev;
pub mod dice;
pub mod maas;
pub mod machine;
pub mod openchami;
pub mod recovery;
pub mod scenario;
pub mod stop;
pub mod system;
