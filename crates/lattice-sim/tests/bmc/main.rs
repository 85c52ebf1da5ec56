//! What every BMC must do, held against the simulator and, where the environment names them, against real emulators:
//! sushy-tools' Redfish (`LATTICE_TEST_REDFISH`, `LATTICE_TEST_REDFISH_STRICT`), ipmi_sim with cipher suite 3
//! (`LATTICE_TEST_IPMI_SIM`) and pyghmi with suite 17 (`LATTICE_TEST_PYGHMI`). `tests/peers/bmc/start.sh` starts them.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod conformance;
mod erase;
mod gate;
mod ipmi;
mod plane;
mod redfish;
mod target;
mod watch;
