//! One method for each route, in the order of the API.

use http::Method;
use lattice_core::ids::{ApiTokenId, BatchId, JobId, SilenceId};
use lattice_core::node::HoldKind;

use super::{Call, Client, ClientError, Transport, encode};
use crate::Gone;
use crate::audit::{AuditEntry, AuditQuery, AuditVerification};
use crate::batch::{
    ActOnBatch, BatchAccepted, BatchAction, BatchActionAnswer, BatchLogLine, BatchLogQuery, BatchQuery, BatchRow,
    BatchView, CreateBatch,
};
use crate::event::{EventPage, EventQuery};
use crate::explanation::Explanation;
use crate::fleet::{Fleet, StageStatsList};
use crate::hold::{HoldView, SetHold};
use crate::job::{ActOnJob, JobAction, JobActionAnswer, JobQuery, JobRow, JobView};
use crate::node::{
    ActOnNode, CreateNode, HistoryEntry, NodeActionAnswer, NodeBootstrap, NodeQuery, NodeRow, NodeVerb, NodeView,
    Reason, Timeline,
};
use crate::onboarding::{CreateOnboarding, OnboardingAccepted, OnboardingView};
use crate::page::{Page, PageQuery};
use crate::silence::{CreateSilence, SilenceView};
use crate::site::{CreateSite, PatchSite, ProbeAnswer, SiteCredentials, SiteStatus, SiteView};
use crate::sku::{CreateSku, PatchSku, Sku};
use crate::token::{CreateToken, CreatedToken, TokenView, WhoAmI};

/// Where every path of this API begins.
pub const ADMIN: &str = "/api/v1/admin";

/// `GET` of a path under [`ADMIN`]; every part is encoded.
pub fn get(parts: &[&str]) -> Call {
    Call::new(Method::GET, path(parts))
}

/// `POST` to a path under [`ADMIN`]; every part is encoded.
pub fn post(parts: &[&str]) -> Call {
    Call::new(Method::POST, path(parts))
}

fn path(parts: &[&str]) -> String {
    let mut path = ADMIN.to_owned();
    for part in parts {
        path.push('/');
        path.push_str(&encode(part));
    }
    path
}

fn with(method: Method, parts: &[&str]) -> Call {
    Call::new(method, path(parts))
}

/// Nodes are named by id or hostname, sites by id or name.
#[allow(clippy::missing_errors_doc, reason = "every method fails as `Client::send` does")]
impl<T: Transport> Client<T> {
    /// Nodes.
    pub async fn nodes(&self, query: &NodeQuery) -> Result<Page<NodeRow>, ClientError> {
        self.send(get(&["nodes"]).query(query)).await
    }

    /// Creates a node that an operator bootstraps by hand.
    pub async fn create_node(&self, node: &CreateNode) -> Result<NodeBootstrap, ClientError> {
        self.send(post(&["nodes"]).json(node)).await
    }

    /// One node.
    pub async fn node(&self, node: &str) -> Result<NodeView, ClientError> {
        self.send(get(&["nodes", node])).await
    }

    /// Changes of a node's states, newest first.
    pub async fn node_history(&self, node: &str, page: &PageQuery) -> Result<Page<HistoryEntry>, ClientError> {
        self.send(get(&["nodes", node, "history"]).query(page)).await
    }

    /// Everything that happened to a node, newest first.
    pub async fn node_timeline(&self, node: &str) -> Result<Timeline, ClientError> {
        self.send(get(&["nodes", node, "timeline"])).await
    }

    /// Why a node is not schedulable.
    pub async fn explain_node(&self, node: &str) -> Result<Explanation, ClientError> {
        self.send(get(&["nodes", node, "explain"])).await
    }

    /// Asks something of a node.
    pub async fn act_on_node(
        &self,
        node: &str,
        verb: NodeVerb,
        body: &ActOnNode,
    ) -> Result<NodeActionAnswer, ClientError> {
        self.send(post(&["nodes", node, &verb.to_string()]).json(body)).await
    }

    /// A new bootstrap command; the earlier token is withdrawn.
    pub async fn reissue_bootstrap(&self, node: &str, reason: &Reason) -> Result<NodeBootstrap, ClientError> {
        self.send(post(&["nodes", node, "bootstrap"]).json(reason)).await
    }

    /// Revokes every certificate of a node.
    pub async fn revoke_certificates(&self, node: &str, reason: &Reason) -> Result<NodeView, ClientError> {
        self.send(post(&["nodes", node, "revoke-certificate"]).json(reason)).await
    }

    /// Silences in force.
    pub async fn silences(&self) -> Result<Page<SilenceView>, ClientError> {
        self.send(get(&["silences"])).await
    }

    /// Says that incidents raise no attention for a while.
    pub async fn create_silence(&self, silence: &CreateSilence) -> Result<SilenceView, ClientError> {
        self.send(post(&["silences"]).json(silence)).await
    }

    /// Lifts a silence before its expiry.
    pub async fn lift_silence(&self, id: SilenceId) -> Result<Gone, ClientError> {
        self.send(with(Method::DELETE, &["silences", &id.to_string()])).await
    }

    /// Holds of a node.
    pub async fn node_holds(&self, node: &str) -> Result<Page<HoldView>, ClientError> {
        self.send(get(&["nodes", node, "holds"])).await
    }

    /// Sets a hold.
    pub async fn set_hold(&self, node: &str, hold: &SetHold) -> Result<NodeView, ClientError> {
        self.send(post(&["nodes", node, "holds"]).json(hold)).await
    }

    /// Clears a hold.
    pub async fn clear_hold(&self, node: &str, kind: HoldKind) -> Result<NodeView, ClientError> {
        self.send(with(Method::DELETE, &["nodes", node, "holds", &kind.to_string()])).await
    }

    /// Holds of all nodes.
    pub async fn holds(&self, page: &PageQuery) -> Result<Page<HoldView>, ClientError> {
        self.send(get(&["holds"]).query(page)).await
    }

    /// Sites.
    pub async fn sites(&self, page: &PageQuery) -> Result<Page<SiteView>, ClientError> {
        self.send(get(&["sites"]).query(page)).await
    }

    /// Creates a site.
    pub async fn create_site(&self, site: &CreateSite) -> Result<SiteView, ClientError> {
        self.send(post(&["sites"]).json(site)).await
    }

    /// One site.
    pub async fn site(&self, site: &str) -> Result<SiteView, ClientError> {
        self.send(get(&["sites", site])).await
    }

    /// Changes a site.
    pub async fn patch_site(&self, site: &str, patch: &PatchSite) -> Result<SiteView, ClientError> {
        self.send(with(Method::PATCH, &["sites", site]).json(patch)).await
    }

    /// Disables a site.
    pub async fn disable_site(&self, site: &str) -> Result<SiteView, ClientError> {
        let patch = PatchSite { status: Some(SiteStatus::Disabled), ..PatchSite::default() };
        self.patch_site(site, &patch).await
    }

    /// Removes a site that no node ever was of.
    pub async fn remove_site(&self, site: &str) -> Result<Gone, ClientError> {
        self.send(with(Method::DELETE, &["sites", site])).await
    }

    /// Tries credentials and writes them to the secret store.
    pub async fn write_credentials(
        &self,
        site: &str,
        credentials: &SiteCredentials,
    ) -> Result<ProbeAnswer, ClientError> {
        self.send(post(&["sites", site, "credentials"]).json(credentials)).await
    }

    /// Tries a site.
    pub async fn probe_site(&self, site: &str) -> Result<ProbeAnswer, ClientError> {
        self.send(post(&["sites", site, "probe"])).await
    }

    /// SKUs.
    pub async fn skus(&self, page: &PageQuery) -> Result<Page<Sku>, ClientError> {
        self.send(get(&["skus"]).query(page)).await
    }

    /// Creates a SKU.
    pub async fn create_sku(&self, sku: &CreateSku) -> Result<Sku, ClientError> {
        self.send(post(&["skus"]).json(sku)).await
    }

    /// One SKU.
    pub async fn sku(&self, name: &str) -> Result<Sku, ClientError> {
        self.send(get(&["skus", name])).await
    }

    /// Changes a SKU.
    pub async fn patch_sku(&self, name: &str, patch: &PatchSku) -> Result<Sku, ClientError> {
        self.send(with(Method::PATCH, &["skus", name]).json(patch)).await
    }

    /// Onboards a machine.
    pub async fn onboard(&self, onboarding: &CreateOnboarding) -> Result<OnboardingAccepted, ClientError> {
        self.send(post(&["onboardings"]).json(onboarding)).await
    }

    /// Onboardings; `query.kind` is ignored.
    pub async fn onboardings(&self, query: &JobQuery) -> Result<Page<JobRow>, ClientError> {
        self.send(get(&["onboardings"]).query(query)).await
    }

    /// One onboarding.
    pub async fn onboarding(&self, id: JobId) -> Result<OnboardingView, ClientError> {
        self.send(get(&["onboardings", &id.to_string()])).await
    }

    /// Onboards many machines.
    pub async fn onboard_batch(&self, batch: &CreateBatch) -> Result<BatchAccepted, ClientError> {
        self.send(post(&["onboardings", "batch"]).json(batch)).await
    }

    /// Batches.
    pub async fn batches(&self, query: &BatchQuery) -> Result<Page<BatchRow>, ClientError> {
        self.send(get(&["onboardings", "batch"]).query(query)).await
    }

    /// One batch.
    pub async fn batch(&self, id: BatchId) -> Result<BatchView, ClientError> {
        self.send(get(&["onboardings", "batch", &id.to_string()])).await
    }

    /// Why a batch is not moving.
    pub async fn explain_batch(&self, id: BatchId) -> Result<Explanation, ClientError> {
        self.send(get(&["onboardings", "batch", &id.to_string(), "explain"])).await
    }

    /// What happened in the stages of a batch's machines, newest first.
    pub async fn batch_log(&self, id: BatchId, query: &BatchLogQuery) -> Result<Page<BatchLogLine>, ClientError> {
        self.send(get(&["onboardings", "batch", &id.to_string(), "log"]).query(query)).await
    }

    /// Asks something of a batch.
    pub async fn act_on_batch(
        &self,
        id: BatchId,
        action: BatchAction,
        body: &ActOnBatch,
    ) -> Result<BatchActionAnswer, ClientError> {
        self.send(post(&["onboardings", "batch", &id.to_string(), &action.to_string()]).json(body)).await
    }

    /// Jobs.
    pub async fn jobs(&self, query: &JobQuery) -> Result<Page<JobRow>, ClientError> {
        self.send(get(&["jobs"]).query(query)).await
    }

    /// One job.
    pub async fn job(&self, id: JobId) -> Result<JobView, ClientError> {
        self.send(get(&["jobs", &id.to_string()])).await
    }

    /// Why a job is not moving.
    pub async fn explain_job(&self, id: JobId) -> Result<Explanation, ClientError> {
        self.send(get(&["jobs", &id.to_string(), "explain"])).await
    }

    /// Asks something of a job.
    pub async fn act_on_job(
        &self,
        id: JobId,
        action: JobAction,
        body: &ActOnJob,
    ) -> Result<JobActionAnswer, ClientError> {
        self.send(post(&["jobs", &id.to_string(), action.verb()]).json(body)).await
    }

    /// One page of events.
    pub async fn events(&self, query: &EventQuery) -> Result<EventPage, ClientError> {
        self.send(get(&["events"]).query(query)).await
    }

    /// Follows events as they come.
    pub async fn follow_events(&self, query: &EventQuery) -> Result<super::Follow<T::Body>, ClientError> {
        self.follow(get(&["events"]).query(query)).await
    }

    /// Rows of the audit, newest first.
    pub async fn audit(&self, query: &AuditQuery) -> Result<Page<AuditEntry>, ClientError> {
        self.send(get(&["audit"]).query(query)).await
    }

    /// The whole audit as JSON lines, for a verification elsewhere.
    pub async fn export_audit(&self) -> Result<bytes::Bytes, ClientError> {
        self.send_raw(get(&["audit", "export"])).await
    }

    /// Has the server verify its audit.
    pub async fn verify_audit(&self) -> Result<AuditVerification, ClientError> {
        self.send(get(&["audit", "verify"])).await
    }

    /// Creates a token.
    pub async fn create_token(&self, token: &CreateToken) -> Result<CreatedToken, ClientError> {
        self.send(post(&["tokens"]).json(token)).await
    }

    /// Tokens.
    pub async fn tokens(&self, page: &PageQuery) -> Result<Page<TokenView>, ClientError> {
        self.send(get(&["tokens"]).query(page)).await
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, id: ApiTokenId) -> Result<TokenView, ClientError> {
        self.send(with(Method::DELETE, &["tokens", &id.to_string()])).await
    }

    /// The fleet at a glance.
    pub async fn fleet(&self) -> Result<Fleet, ClientError> {
        self.send(get(&["fleet"])).await
    }

    /// How long stages have taken.
    pub async fn stage_stats(&self) -> Result<StageStatsList, ClientError> {
        self.send(get(&["stats", "stages"])).await
    }

    /// Who the caller is.
    pub async fn whoami(&self) -> Result<WhoAmI, ClientError> {
        self.send(get(&["whoami"])).await
    }
}
