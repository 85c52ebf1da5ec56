//! Adapters to systems that are not ours: what they say becomes typed facts, what they refuse becomes typed errors.
//!
//! Observing and changing are apart: [`observer::MachineObserver`] only reads, [`provider::MachineProvider`] acts.

pub mod error;
pub mod machine;
pub mod message;
pub mod observer;
pub mod provider;
pub mod secret;
pub mod ssh;
pub mod webhook;
