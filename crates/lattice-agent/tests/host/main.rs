//! The agent on a real host: real processes in real cgroups, mounts, signals, its own death at the wrong moment.
//!
//! Needs root and a cgroup2 file system that can be written to; without them each test says that it is skipped.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod place;
mod restarts;
mod wipes;
mod workloads;
