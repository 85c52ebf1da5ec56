//! Enrolment tokens and API tokens: hashes and lifetimes, never a secret.

use lattice_core::credential::{ApiToken, EnrollmentToken};
use lattice_core::ids::{ApiTokenId, JobId, NodeId, TokenId};

use crate::error::StoreError;
use crate::page::PAGE_MAX;
use crate::sql::{Query, Reader, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each enrolment token.
pub(crate) const ENROLLMENT_TOKENS: Table = Table {
    name: "enrollment_tokens",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        col("id", Kind::Id),
        col("node", Kind::Id),
        col("job", Kind::Id),
        col("hash", Kind::Text),
        col("issued_at", Kind::Int),
        col("expires_at", Kind::Int),
        col("used_at", Kind::Int),
        col("key_hash", Kind::Text),
        col("refreshes", Kind::Int),
        col("revoked_at", Kind::Int),
        col("generation", Kind::Int),
    ],
};

/// One row for each API token.
pub(crate) const API_TOKENS: Table = Table {
    name: "api_tokens",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        col("id", Kind::Id),
        col("name", Kind::Text),
        col("role", Kind::Text),
        col("hash", Kind::Text),
        col("issued_at", Kind::Int),
        col("expires_at", Kind::Int),
        col("revoked_at", Kind::Int),
        col("generation", Kind::Int),
    ],
};

pub(crate) fn enrollment_row(token: &EnrollmentToken) -> Vec<Value<'_>> {
    vec![
        Value::Id(token.id.uuid()),
        Value::Id(token.node.uuid()),
        Value::opt_id(token.job.map(JobId::uuid)),
        Value::text(&token.hash),
        Value::time(token.issued_at),
        Value::time(token.expires_at),
        Value::opt_time(token.used_at),
        Value::opt_text(token.key_hash.as_deref()),
        Value::Int(i64::from(token.refreshes)),
        Value::opt_time(token.revoked_at),
        Value::generation(token.generation),
    ]
}

fn read_enrollment(r: &mut Reader<'_>) -> Result<EnrollmentToken, StoreError> {
    Ok(EnrollmentToken {
        id: TokenId::new(r.id()?),
        node: NodeId::new(r.id()?),
        job: r.opt_id()?.map(JobId::new),
        hash: r.text()?,
        issued_at: r.time()?,
        expires_at: r.time()?,
        used_at: r.opt_time()?,
        key_hash: r.opt_text()?,
        refreshes: r.small()?,
        revoked_at: r.opt_time()?,
        generation: r.generation()?,
    })
}

pub(crate) fn api_row(token: &ApiToken) -> Vec<Value<'_>> {
    vec![
        Value::Id(token.id.uuid()),
        Value::text(&token.name),
        Value::name(token.role),
        Value::text(&token.hash),
        Value::time(token.issued_at),
        Value::opt_time(token.expires_at),
        Value::opt_time(token.revoked_at),
        Value::generation(token.generation),
    ]
}

fn read_api(r: &mut Reader<'_>) -> Result<ApiToken, StoreError> {
    Ok(ApiToken {
        id: ApiTokenId::new(r.id()?),
        name: r.text()?,
        role: r.name()?,
        hash: r.text()?,
        issued_at: r.time()?,
        expires_at: r.opt_time()?,
        revoked_at: r.opt_time()?,
        generation: r.generation()?,
    })
}

impl Store {
    /// The enrolment token of that hash (SHA-256, hex), used and withdrawn ones included.
    ///
    /// # Errors
    /// The database fails.
    pub async fn enrollment_token_by_hash(&self, hash: &str) -> Result<Option<EnrollmentToken>, StoreError> {
        const TOKEN: &str = "SELECT id, node, job, hash, issued_at, expires_at, used_at, key_hash, refreshes, revoked_at, \
            generation FROM enrollment_tokens WHERE hash = ?1";
        Ok(self.fetch(Query::new(TOKEN, vec![Value::owned(hash.to_owned())]), read_enrollment).await?.pop())
    }

    /// The enrolment token of that id.
    ///
    /// # Errors
    /// The database fails.
    pub async fn enrollment_token(&self, id: TokenId) -> Result<Option<EnrollmentToken>, StoreError> {
        const TOKEN: &str = "SELECT id, node, job, hash, issued_at, expires_at, used_at, key_hash, refreshes, revoked_at, \
            generation FROM enrollment_tokens WHERE id = ?1";
        Ok(self.fetch(Query::new(TOKEN, vec![Value::Id(id.uuid())]), read_enrollment).await?.pop())
    }

    /// The enrolment tokens of a node, the newest first; at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn enrollment_tokens_of(&self, node: NodeId) -> Result<Vec<EnrollmentToken>, StoreError> {
        const TOKENS: &str = "SELECT id, node, job, hash, issued_at, expires_at, used_at, key_hash, refreshes, revoked_at, \
            generation FROM enrollment_tokens WHERE node = ?1 ORDER BY id DESC LIMIT ?2";
        let params = vec![Value::Id(node.uuid()), Value::Int(PAGE_MAX as i64)];
        self.fetch(Query::new(TOKENS, params), read_enrollment).await
    }

    /// The API token of that hash (SHA-256, hex), withdrawn and expired ones included.
    ///
    /// # Errors
    /// The database fails.
    pub async fn api_token_by_hash(&self, hash: &str) -> Result<Option<ApiToken>, StoreError> {
        const TOKEN: &str = "SELECT id, name, role, hash, issued_at, expires_at, revoked_at, generation \
            FROM api_tokens WHERE hash = ?1";
        Ok(self.fetch(Query::new(TOKEN, vec![Value::owned(hash.to_owned())]), read_api).await?.pop())
    }

    /// All API tokens, the newest first; at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn api_tokens(&self) -> Result<Vec<ApiToken>, StoreError> {
        const TOKENS: &str = "SELECT id, name, role, hash, issued_at, expires_at, revoked_at, generation \
            FROM api_tokens ORDER BY id DESC LIMIT ?1";
        self.fetch(Query::new(TOKENS, vec![Value::Int(PAGE_MAX as i64)]), read_api).await
    }
}
