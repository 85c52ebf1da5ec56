//! OpenCHAMI: State Manager (smd), Boot Script Service (bss) and Power Control (pcs), with the quirks of their contracts.

mod bss;
mod client;
mod pcs;
mod smd;

pub use bss::{BootParameters, BootScript, Boots, Machine};
pub use client::{OchamiClient, OchamiSettings};
pub use pcs::{PowerOperation, Transition, TransitionId};
pub use smd::{
    Component, EndpointLogin, Flag, Interface, InterfaceAddress, KnownEndpoint, NewEndpoint, NewSystem, State,
    StateChange, Subscription, Xname,
};
