//! MAAS region API 2.0: a client that honours its contract, quirks included, and an observer that spares the region.

pub mod body;
mod call;
pub mod client;
mod date;
pub mod event;
pub mod follow;
pub mod lifecycle;
pub mod machines;
pub mod network;
mod oauth;
pub mod observer;
pub mod power;
pub mod region;
pub mod status;
pub mod storage;
pub mod transport;
mod verdict;

pub use body::{Machine, SystemId};
pub use client::{CallCount, ClientSettings, MaasClient, RetryPolicy};
pub use date::MaasTime;
pub use observer::MaasObserver;
pub use status::MachineStatus;
pub use transport::{HttpTransport, MaasRequest, MaasResponse, MaasTransport, Params, Roots};
