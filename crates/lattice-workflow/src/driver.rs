//! Schedulers of turns. Thin: the store is the source of truth, the runner does the work. design: 3-jobs

pub mod embedded;
mod ready;
mod sites;

pub use embedded::{DriverLimits, EmbeddedDriver};
