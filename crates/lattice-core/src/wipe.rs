//! Wiping a node after sensitive work: what is said about it, and the signed certificate of each device.
//! spec: S1 "Sensitive Release Sequence"

mod certificate;
mod run;
mod told;

pub use certificate::{CertificateFile, NotProven, PAYLOAD_TYPE, WipeCertificate, check_keys};
pub use run::{ProvenStep, WipeReboot, WipeRun, WipeTarget};
pub use told::WipeTold;
