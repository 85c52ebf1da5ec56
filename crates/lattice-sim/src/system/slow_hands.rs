//! Hands that take their time: an agent can die before, between and after what it does.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lattice_agent::{AllocationState, Born, Found, HandError, Hands};
use lattice_core::agent::task::{
    AllocationStart, CheckpointHow, CheckpointResult, ExitStatus, Running, StopResult, TaskInput, WipeOutput,
};
use lattice_core::ids::NodeId;
use lattice_core::time::Clock;

use super::acts::{RULE, miswipes};
use super::faults::Fault;
use super::ground::Ground;
use super::luck::Luck;
use super::metal::Metal;
use crate::machine::hands::{SimulatedHands, WipeFate};

/// See the module.
pub struct SlowHands {
    hands: Arc<SimulatedHands>,
    node: Option<NodeId>,
    metal: Arc<Metal>,
    /// The boot in which they work.
    boot: String,
    ground: Arc<Ground>,
    luck: Arc<Luck>,
}

impl SlowHands {
    /// Over those of the present boot.
    pub fn new(
        hands: Arc<SimulatedHands>,
        node: Option<NodeId>,
        (metal, boot): (Arc<Metal>, String),
        ground: &Arc<Ground>,
    ) -> Self {
        Self { hands, node, metal, boot, ground: Arc::clone(ground), luck: Arc::clone(&ground.hosts) }
    }

    /// A wipe is begun: it is judged as things stand now.
    fn judge_wipe(&self) {
        let wrong = miswipes(&self.ground.model(), self.node, &self.hands.running());
        wrong.into_iter().for_each(|what| self.ground.wrong(format!("{RULE}: {what}")));
    }

    async fn pause(&self, up_to_ms: u64) {
        tokio::time::sleep(self.luck.millis(0, up_to_ms)).await;
    }
}

#[async_trait]
impl Hands for SlowHands {
    fn lacks(&self, input: &TaskInput) -> Option<String> {
        self.hands.lacks(input)
    }

    fn scope(&self, running: Running) -> String {
        self.hands.scope(running)
    }

    async fn start(&self, start: &AllocationStart, scope: &str) -> Result<Born, HandError> {
        self.pause(2_000).await;
        if self.luck.once_in(40) {
            return Err(HandError::failed("the program is not there"));
        }
        let born = self.hands.start(start, scope).await;
        self.metal.soil();
        self.pause(500).await;
        born
    }

    async fn first_process(&self, one: &AllocationState) -> Result<(), Option<ExitStatus>> {
        self.hands.first_process(one).await
    }

    async fn stop(&self, one: &AllocationState, grace: Duration) -> Result<StopResult, HandError> {
        self.pause(5_000).await;
        if self.luck.once_in(40) {
            return Err(HandError::failed("a process in uninterruptible sleep"));
        }
        let stopped = self.hands.stop(one, grace).await;
        self.pause(500).await;
        stopped
    }

    async fn checkpoint(
        &self,
        one: &AllocationState,
        how: &CheckpointHow,
        timeout: Duration,
    ) -> Result<CheckpointResult, HandError> {
        self.pause(30_000).await;
        if self.luck.once_in(200) {
            return Err(HandError::failed("it did not save its state"));
        }
        self.hands.checkpoint(one, how, timeout).await
    }

    async fn clean(&self, cgroup: &str) -> Result<(), HandError> {
        self.pause(200).await;
        if self.luck.once_in(self.ground.weather().hosts) {
            self.ground.faults.befell(Fault::CleanFailed);
            return Err(HandError::failed("device or resource busy"));
        }
        self.hands.clean(cgroup).await
    }

    async fn scopes(&self) -> Vec<Found> {
        self.hands.scopes().await
    }

    async fn wipe(&self, input: &TaskInput, clock: &dyn Clock) -> Result<WipeOutput, HandError> {
        self.judge_wipe();
        self.pause(120_000).await;
        let fate = match self.luck.below(25) {
            0 => WipeFate::Fails,
            1 => WipeFate::WithoutEvidence,
            2 => WipeFate::Hangs,
            _ => WipeFate::Works,
        };
        let fault = match fate {
            WipeFate::Works => None,
            WipeFate::Fails => Some(Fault::WipeFailed),
            WipeFate::WithoutEvidence => Some(Fault::WipeUnproven),
            WipeFate::Hangs => Some(Fault::WipeHung),
        };
        fault.into_iter().for_each(|fault| self.ground.faults.befell(fault));
        self.hands.set_wipe(fate);
        let mut output = self.hands.wipe(input, clock).await?;
        self.metal.hide_lost(input, &mut output);
        if fate == WipeFate::Works {
            self.metal.erased(&output, &self.boot);
        }
        Ok(output)
    }

    async fn reboot(&self) -> Result<(), HandError> {
        self.hands.reboot().await
    }
}
