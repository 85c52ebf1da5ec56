//! `lattice dev machine`: a person does something to a machine of a `lattice dev` that runs.

use clap::Args;
use lattice_sim::dev::Dev;
use lattice_sim::dev::control::{self, AgentOrder, Control, Order};

use crate::failure::Failure;
use crate::output;
use crate::vocabulary::word;

/// Name of the socket at which a running `lattice dev` takes orders.
const SOCKET: &str = "lattice-dev-machines.sock";

/// What is done to which machine.
#[derive(Debug, Args)]
pub struct Machine {
    /// Hostname
    machine: String,
    /// Kill its agent, or start it again: kill, start
    #[arg(long, value_name = "WHAT", required_unless_present_any = ["wipe", "lost_gpus"])]
    agent: Option<String>,
    /// What its wipes come to from now on: works, fails, without-evidence, hangs
    #[arg(long, value_name = "WHAT")]
    wipe: Option<String>,
    /// How many GPUs are off its bus
    #[arg(long, value_name = "COUNT")]
    lost_gpus: Option<usize>,
}

/// Gives the order.
///
/// # Errors
/// No `lattice dev` runs for this user, or it has no such machine.
pub async fn run(machine: Machine) -> Result<(), Failure> {
    let order = Order {
        agent: machine.agent.map(|what| word::<AgentOrder>("order to an agent", &what)).transpose()?,
        wipe: machine.wipe.map(|what| word("fate of a wipe", &what)).transpose()?,
        lost_gpus: machine.lost_gpus,
        machine: machine.machine,
    };
    let path = super::runtime_folder().join(SOCKET);
    let obeyed = control::order(&path, &order).await.map_err(|error| {
        Failure::refused("no `lattice dev` takes orders here")
            .because(format!("{}: {error}", path.display()))
            .next("lattice dev", "starts one")
    })?;
    if obeyed.ok { output::text(&format!("{}\n", obeyed.said)) } else { Err(Failure::refused(obeyed.said)) }
}

/// Takes orders as long as what is returned lives.
///
/// # Errors
/// The socket cannot be bound.
pub fn listen(dev: &Dev) -> Result<Control, Failure> {
    let path = super::runtime_folder().join(SOCKET);
    Control::listen(path.clone(), dev.agents().clone())
        .map_err(|error| Failure::refused(format!("{} cannot be listened at: {error}", path.display())))
}
