//! Loops that observe and decide. They meet the workflow in the store, and never call it.
//!
//! [`Fleet`] keeps the registry of heartbeats in step with the store's feed; [`Detector`] turns silence and late boots
//! into transitions; [`Allocator`] places users' work and follows it; [`BmcWatch`] looks at BMCs; [`Conformance`] judges
//! fingerprints; [`Remediator`] reboots what fell silent, where its site says so; [`SecretWatch`] tells when the secret
//! store goes and comes back. Each has one `tick`, so that a simulation can drive it without tasks.

mod allocator;
mod bmcs;
mod conformance;
mod detector;
mod fit;
mod fleet;
mod remediator;
mod secrets;
mod silences;
mod tasks;
mod tokens;
mod wipes;

pub use allocator::{Allocated, Allocator, Nonces};
pub use bmcs::{BmcWatch, BmcsWatched};
pub use conformance::Conformance;
pub use detector::{Detector, HEARS, Judged};
pub use fit::nowhere;
pub use fleet::Fleet;
pub use remediator::{Remediated, Remediator};
pub use secrets::{SecretOutage, SecretWatch, Watched};
pub use silences::expire_silences;
pub use tasks::expire_tasks;
pub use tokens::expire_bootstraps;
pub use wipes::begin_wipes;
