//! Machines that booted from the network take their tokens.

use lattice_api::error::Problem;
use lattice_core::command::claim::{Claim, claimable, claimed};
use lattice_core::credential::EnrollmentToken;
use lattice_core::job::Job;
use lattice_core::node::Node;
use lattice_core::secret::{Secret, token_hash};
use lattice_store::StoreError;
use lattice_workflow::enrollment::job_secrets;
use tracing::{info, warn};

use super::{Agents, unavailable};
use crate::agent_api::{BootClaim, nothing_waits};

impl Agents {
    /// Hands a machine its token, and notes that it did before it does. The same machine may ask again until it used it:
    /// the answer may have been lost.
    pub(super) async fn hand_token(&self, asked: BootClaim) -> Result<Secret<String>, Problem> {
        let Some((node, job, token)) = self.of_boot(&asked).await.map_err(unavailable)? else {
            return Err(nothing_waits(asked.node));
        };
        let peer = asked.peer.ip().to_canonical();
        let claim = Claim { node: &node, job: job.as_ref(), token: token.as_ref(), peer };
        let token = match claimable(&claim, asked.at) {
            Ok(token) => token,
            Err(refused) => {
                self.audit_refusal(asked.node, "node.claim", format!("{refused} (from {})", asked.peer), asked.at)
                    .await;
                return Err(nothing_waits(asked.node));
            }
        };
        let Some(secret) = self.kept(&claim, token).await else { return Err(nothing_waits(asked.node)) };
        let commit = self.request(asked.node, asked.at).commit(Vec::new(), vec![claimed(&claim)]);
        self.store.commit_one(commit).await.map_err(unavailable)?;
        info!(node_id = %asked.node, "enrolment token handed to a machine that booted");
        if let Some(job) = node.owning_job {
            self.jobs.wake(job);
        }
        Ok(secret)
    }

    async fn of_boot(
        &self,
        asked: &BootClaim,
    ) -> Result<Option<(Node, Option<Job>, Option<EnrollmentToken>)>, StoreError> {
        let Some(node) = self.store.node(asked.node).await? else { return Ok(None) };
        let job = match node.owning_job {
            Some(job) => self.store.job(job).await?,
            None => None,
        };
        let token = match job.as_ref().and_then(|job| job.outputs.token) {
            Some(token) => self.store.enrollment_token(token).await?,
            None => None,
        };
        Ok(Some((node, job, token)))
    }

    /// The secret that the job keeps, if it is that token's: one that is being replaced is not handed over.
    async fn kept(&self, claim: &Claim<'_>, token: &EnrollmentToken) -> Option<Secret<String>> {
        let path = job_secrets(claim.job?.id);
        match self.secrets.as_ref()?.read(&path).await {
            Ok(mut kept) => kept.remove("token").filter(|secret| token_hash(secret.expose()) == token.hash),
            Err(error) => {
                warn!(node_id = %claim.node.id, %error, "the token of a machine that booted cannot be read");
                None
            }
        }
    }
}
