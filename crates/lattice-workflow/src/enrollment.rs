//! Enrolment tokens: issued, kept secret until used, extended, withdrawn. design: 4 "Identity and transport"

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lattice_core::change::Change;
use lattice_core::credential::EnrollmentToken;
use lattice_core::ids::{Generation, IdSource, JobId, NodeId, TokenId};
use lattice_core::job::{JobInput, StageError};
use lattice_core::secret::{Secret, Wipe, token_hash};
use lattice_core::time::Timestamp;
use lattice_providers::secret::{SecretError, SecretObject, SecretPath};

use crate::stage::{Context, error, store_failed};
use crate::tools::{Entropy, Tools};

/// Every enrolment token starts with it, so that a leaked one is recognised.
pub const TOKEN_PREFIX: &str = "lat_enroll_";

/// For whom a token is.
#[derive(Debug, Clone, Copy)]
pub struct TokenFor {
    /// The only node that may use it.
    pub node: NodeId,
    /// The job that issues it.
    pub job: JobId,
    /// From when.
    pub now: Timestamp,
    /// For how long.
    pub life: Duration,
}

/// A new token: its row, and the secret that is never stored in a row.
pub fn issue(whose: TokenFor, ids: &dyn IdSource, entropy: &dyn Entropy) -> (EnrollmentToken, Secret<String>) {
    let mut bytes = entropy.bytes32().to_vec();
    let token = format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(&bytes));
    bytes.wipe();
    let row = EnrollmentToken {
        id: TokenId::generate(ids, whose.now),
        node: whose.node,
        job: Some(whose.job),
        hash: token_hash(&token),
        issued_at: whose.now,
        expires_at: whose.now + whose.life,
        used_at: None,
        key_hash: None,
        refreshes: 0,
        revoked_at: None,
        generation: Generation::FIRST,
    };
    (row, Secret::new(token))
}

/// The token with another life from `now`.
pub fn extended(token: &EnrollmentToken, now: Timestamp, life: Duration) -> EnrollmentToken {
    EnrollmentToken {
        expires_at: now + life,
        refreshes: token.refreshes + 1,
        generation: token.generation.next(),
        ..token.clone()
    }
}

/// The token, withdrawn.
pub fn revoked(token: &EnrollmentToken, now: Timestamp) -> EnrollmentToken {
    EnrollmentToken { revoked_at: Some(now), generation: token.generation.next(), ..token.clone() }
}

/// Withdraws every token of a node that could still be used.
///
/// # Errors
/// The store cannot be read.
pub async fn revoke_all(tools: &Tools, node: NodeId, now: Timestamp) -> Result<Vec<Change>, StageError> {
    let tokens = tools.store.enrollment_tokens_of(node).await.map_err(store_failed)?;
    let open = tokens.iter().filter(|token| token.used_at.is_none() && token.revoked_at.is_none());
    Ok(open.map(|token| Change::EnrollmentToken(revoked(token, now))).collect())
}

/// Where a job keeps what it must keep secret between its stages.
pub fn job_secrets(job: JobId) -> SecretPath {
    format!("jobs/{job}/bootstrap").parse().expect("an id is made of letters, digits and dashes")
}

/// Where a job keeps what its machine booted before: others may have put secrets into that.
pub fn boot_before_secrets(job: JobId) -> SecretPath {
    format!("jobs/{job}/boot-before").parse().expect("an id is made of letters, digits and dashes")
}

/// The token that a job's stage issued, if it can still be used.
///
/// # Errors
/// The store cannot be read.
pub async fn usable_token(ctx: &Context<'_>) -> Result<Option<EnrollmentToken>, StageError> {
    let token = token_of(ctx).await?;
    Ok(token.filter(|token| token.check(ctx.node.id, ctx.now).is_ok()))
}

/// The token that a job's stage issued; of a manual onboarding, the newest that an operator was given for it.
///
/// # Errors
/// The store cannot be read.
pub async fn token_of(ctx: &Context<'_>) -> Result<Option<EnrollmentToken>, StageError> {
    let noted = match ctx.job.outputs.token {
        Some(id) => ctx.tools.store.enrollment_token(id).await.map_err(store_failed)?,
        None => None,
    };
    let is_good = noted.as_ref().is_some_and(|token| token.revoked_at.is_none());
    if is_good || !matches!(ctx.job.input, JobInput::OnboardManual { .. }) {
        return Ok(noted);
    }
    let tokens = ctx.tools.store.enrollment_tokens_of(ctx.node.id).await.map_err(store_failed)?;
    let given = tokens.into_iter().filter(|token| token.job == Some(ctx.job.id) && token.revoked_at.is_none());
    Ok(given.max_by_key(|token| token.issued_at).or(noted))
}

/// Keeps secrets of a job until they are used.
///
/// # Errors
/// The secret store cannot be written.
pub async fn keep(ctx: &Context<'_>, object: SecretObject) -> Result<(), StageError> {
    ctx.tools.secrets.write(&job_secrets(ctx.job.id), object).await.map_err(|error| secret_error(&error, ctx.now))
}

/// The secrets that were kept.
///
/// # Errors
/// The secret store cannot be read; nothing was kept.
pub async fn kept(ctx: &Context<'_>) -> Result<SecretObject, StageError> {
    ctx.tools.secrets.read(&job_secrets(ctx.job.id)).await.map_err(|error| secret_error(&error, ctx.now))
}

/// Whether a kept first-boot payload is the one that a commit of this job knows, with its token.
pub fn is_rendered(ctx: &Context<'_>, user_data: &Secret<String>) -> bool {
    ctx.job.outputs.user_data_sha256.as_ref() == Some(&token_hash(user_data.expose()))
}

/// Forgets them.
///
/// # Errors
/// The secret store cannot be written.
pub async fn forget(ctx: &Context<'_>) -> Result<(), StageError> {
    ctx.tools.secrets.delete(&job_secrets(ctx.job.id)).await.map_err(|error| secret_error(&error, ctx.now))
}

/// An error of the secret store, as a stage reports it: what happened, what to do, and when it is tried again.
pub fn secret_error(failed: &SecretError, now: Timestamp) -> StageError {
    let trouble = failed.trouble();
    StageError {
        retry_after: trouble.retry_after().map(|after| now + after),
        ..error(trouble.class(), trouble.error_code(), failed.told())
    }
}
