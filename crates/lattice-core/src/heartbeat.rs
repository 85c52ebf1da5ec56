//! Heartbeats: who was heard when, and what silence means.

pub mod brake;
pub mod detector;
pub mod registry;

mod index;

pub use registry::{Beat, Handle, Heard, Refused, Registry, Said, Silence, Vitals};
