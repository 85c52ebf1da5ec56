//! A simulated machine: while its power is on it asks for its boot script, boots what that says, and runs the node agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lattice_agent::{BootPlace, Pace, claim};
use lattice_core::node::HostFacts;

use super::pcs::SimPcs;
use crate::clock::SystemClock;
use crate::machine::agent::{AgentLauncher, MachineBoot, RunningAgent};
use crate::machine::real_agent::RealAgents;
use crate::stop::{Stop, spawn_until_stopped};

/// How often the machine looks whether its power changed.
const LOOK: Duration = Duration::from_millis(20);

/// A machine.
pub struct SimNode {
    /// Its component.
    pub xname: String,
    /// Hardware address that it boots from.
    pub mac: String,
    /// Address of the Boot Script Service, as its network tells it.
    pub bss: String,
    /// The CA in its image.
    pub ca_pem: String,
    /// Its hardware.
    pub facts: HostFacts,
    /// Where its power comes from.
    pub pcs: Arc<SimPcs>,
    /// Its agents, and how fast they go.
    pub agents: (RealAgents, Pace),
}

impl SimNode {
    /// Runs it until stopped. `boots` counts the kernels that it started.
    pub fn run(self, boots: Arc<AtomicU64>) -> Stop {
        spawn_until_stopped(async move {
            loop {
                self.until(true).await;
                let life = async {
                    match self.boot(&boots).await {
                        Ok(agent) => {
                            std::future::pending::<()>().await;
                            drop(agent);
                        }
                        Err(why) => tracing::warn!(xname = self.xname, why, "a simulated machine does not boot"),
                    }
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    () = self.until(false) => {}
                    () = life => {}
                }
                self.agents.0.kill(&self.xname);
            }
        })
    }

    async fn until(&self, on: bool) {
        let mut looks = tokio::time::interval(LOOK);
        while self.pcs.is_on(&self.xname) != on {
            looks.tick().await;
        }
    }

    /// Asks until there is something to boot, then boots it: nothing of an earlier boot is left.
    async fn boot(&self, boots: &AtomicU64) -> Result<Box<dyn RunningAgent>, String> {
        let params = self.script().await;
        let boot = boots.fetch_add(1, Ordering::SeqCst) + 1;
        let boot_id = format!("{}-boot-{boot}", self.xname);
        let place = BootPlace::of(&params).map_err(|error| error.to_string())?.ok_or("the kernel is given no node")?;
        let (agents, pace) = &self.agents;
        let given = claim(&place, self.ca_pem.clone(), (boot_id.clone(), *pace), Arc::new(SystemClock)).await;
        let bootstrap = given.map_err(|error| error.to_string())?;
        let machine = MachineBoot {
            label: self.xname.clone(),
            hostname: self.xname.clone(),
            system_id: self.xname.clone(),
            // Its memory is its disk.
            deployment: boot,
            boot_id,
            facts: self.facts.clone(),
            bootstrap,
        };
        agents.launch(machine).await
    }

    async fn script(&self) -> String {
        let url = format!("{}/boot/v1/bootscript?mac={}", self.bss, self.mac);
        let mut looks = tokio::time::interval(LOOK);
        loop {
            looks.tick().await;
            let Ok(answer) = reqwest::get(&url).await else { continue };
            let text = answer.text().await.unwrap_or_default();
            if let Some(kernel) = text.lines().find_map(|line| line.strip_prefix("kernel ")) {
                return kernel.trim_end_matches("|| goto boot_retry").to_owned();
            }
        }
    }
}
