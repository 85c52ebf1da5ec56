//! Loops that observe and decide. They meet the workflow in the store, and never call it.
//!
//! [`Fleet`] keeps the registry of heartbeats in step with the store's feed; [`Detector`] turns silence and late boots
//! into transitions; [`Allocator`] places users' work and follows it; [`BmcWatch`] looks at BMCs; [`SecretWatch`] tells
//! when the secret store goes and comes back. Each has one `tick`, so that a simulation can drive it without tasks.

mod allocator;
mod bmcs;
mod detector;
mod fleet;
mod secrets;
mod tasks;
mod tokens;

pub use allocator::{Allocated, Allocator, Nonces};
pub use bmcs::{BmcWatch, BmcsWatched};
pub use detector::{Detector, Judged};
pub use fleet::Fleet;
pub use secrets::{SecretOutage, SecretWatch, Watched};
pub use tasks::expire_tasks;
pub use tokens::expire_bootstraps;
