//! A simulated BMC: Redfish over HTTP for one machine, with faults.

mod body;
mod server;
mod state;

pub use server::serve;
pub use state::{BmcFault, Order, Resets, SimBmc};
