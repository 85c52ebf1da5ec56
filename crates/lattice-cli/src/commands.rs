//! One file for each noun.

pub mod admin;
pub mod allocation;
pub mod audit;
pub mod backup;
pub mod batch;
pub mod completion;
pub mod dev;
pub mod docs;
pub mod events;
pub mod explain;
pub mod fleet;
pub mod hold;
pub mod job;
pub mod node;
pub mod onboard;
pub mod server;
pub mod silence;
pub mod sim;
pub mod site;
pub mod sku;
pub mod token;
pub mod version;
pub mod webhook;
pub mod wipe;
