//! Hands that take their time: an agent can die before, between and after what it does.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lattice_agent::{AllocationState, Born, Found, HandError, Hands};
use lattice_core::agent::task::{
    AllocationStart, CheckpointHow, CheckpointResult, ExitStatus, Running, StopResult, TaskInput, WipeOutput,
};
use lattice_core::time::Clock;

use super::luck::Luck;
use crate::machine::hands::{SimulatedHands, WipeFate};

/// See the module.
pub struct SlowHands {
    hands: Arc<SimulatedHands>,
    luck: Arc<Luck>,
}

impl SlowHands {
    /// Over those of the present boot.
    pub const fn new(hands: Arc<SimulatedHands>, luck: Arc<Luck>) -> Self {
        Self { hands, luck }
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
        self.hands.clean(cgroup).await
    }

    async fn scopes(&self) -> Vec<Found> {
        self.hands.scopes().await
    }

    async fn wipe(&self, input: &TaskInput, clock: &dyn Clock) -> Result<WipeOutput, HandError> {
        self.pause(120_000).await;
        self.hands.set_wipe(match self.luck.below(20) {
            0 => WipeFate::Fails,
            1 => WipeFate::WithoutEvidence,
            _ => WipeFate::Works,
        });
        self.hands.wipe(input, clock).await
    }

    async fn reboot(&self) -> Result<(), HandError> {
        self.hands.reboot().await
    }
}
