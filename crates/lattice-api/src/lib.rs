//! The wire contract: requests, answers, errors.

pub mod agent;
pub mod error;
