//! What stands beside a site's row: profiles, power-credential overrides, RoCE assignments. spec: S5 3.2.1, 3.3, 3.7

use lattice_core::ids::{OverrideId, ProfileId, RoceId, SiteId};
use lattice_core::site::power_credentials::PowerTarget;
use lattice_core::site::{PowerOverride, RoceAssignment, RoceRow, SiteProfile};

use crate::error::StoreError;
use crate::page::PAGE_MAX;
use crate::sql::{Query, Reader, Value};
use crate::store::Store;
use crate::table::{Kind, Table, Writes, col};

/// One row for each profile; the whole of it stands in `body`.
pub(crate) const PROFILES: Table = Table {
    name: "site_profiles",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        col("id", Kind::Id),
        col("site", Kind::Id),
        col("name", Kind::Text),
        col("status", Kind::Text),
        col("created_at", Kind::Int),
        col("updated_at", Kind::Int),
        col("generation", Kind::Int),
        col("body", Kind::Text),
    ],
};

/// One row for each power-credential override; the login is in the secret store, at `path`.
pub(crate) const OVERRIDES: Table = Table {
    name: "power_overrides",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        col("id", Kind::Id),
        col("site", Kind::Id),
        col("selector", Kind::Text),
        col("value", Kind::Text),
        col("path", Kind::Text),
        col("status", Kind::Text),
        col("created_at", Kind::Int),
        col("updated_at", Kind::Int),
        col("generation", Kind::Int),
    ],
};

/// One row for each interface of a host that gets a RoCE address. `address` is that of `ipv4_cidr`, to be looked up.
pub(crate) const ROCE: Table = Table {
    name: "roce",
    key: 1,
    writes: Writes::Replace,
    columns: &[
        col("id", Kind::Id),
        col("site", Kind::Id),
        col("hostname", Kind::Text),
        col("interface", Kind::Text),
        col("ipv4_cidr", Kind::Text),
        col("address", Kind::Text),
        col("created_at", Kind::Int),
        col("updated_at", Kind::Int),
        col("generation", Kind::Int),
    ],
};

pub(crate) fn profile_row(profile: &SiteProfile) -> Vec<Value<'_>> {
    vec![
        Value::Id(profile.id.uuid()),
        Value::Id(profile.site.uuid()),
        Value::text(&profile.name),
        Value::name(profile.status),
        Value::time(profile.created_at),
        Value::time(profile.updated_at),
        Value::generation(profile.generation),
        Value::json(profile),
    ]
}

pub(crate) fn override_row(one: &PowerOverride) -> Vec<Value<'_>> {
    vec![
        Value::Id(one.id.uuid()),
        Value::Id(one.site.uuid()),
        Value::name(one.selector),
        Value::text(&one.value),
        Value::text(&one.path),
        Value::name(one.status),
        Value::time(one.created_at),
        Value::time(one.updated_at),
        Value::generation(one.generation),
    ]
}

pub(crate) fn roce_row(row: &RoceRow) -> Vec<Value<'_>> {
    let one = &row.assignment;
    vec![
        Value::Id(row.id.uuid()),
        Value::Id(row.site.uuid()),
        Value::text(&one.hostname),
        Value::text(&one.interface),
        Value::owned(one.ipv4_cidr.to_string()),
        Value::owned(one.ipv4_cidr.addr().to_string()),
        Value::time(row.created_at),
        Value::time(row.updated_at),
        Value::generation(row.generation),
    ]
}

fn read_override(r: &mut Reader<'_>) -> Result<PowerOverride, StoreError> {
    Ok(PowerOverride {
        id: OverrideId::new(r.id()?),
        site: SiteId::new(r.id()?),
        selector: r.name()?,
        value: r.text()?,
        path: r.text()?,
        status: r.name()?,
        created_at: r.time()?,
        updated_at: r.time()?,
        generation: r.generation()?,
    })
}

fn read_roce(r: &mut Reader<'_>) -> Result<RoceRow, StoreError> {
    let (id, site) = (RoceId::new(r.id()?), SiteId::new(r.id()?));
    let assignment = RoceAssignment { hostname: r.text()?, interface: r.text()?, ipv4_cidr: r.name()? };
    Ok(RoceRow { id, site, assignment, created_at: r.time()?, updated_at: r.time()?, generation: r.generation()? })
}

impl Store {
    /// The profiles of a site, by name; at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn profiles(&self, site: SiteId) -> Result<Vec<SiteProfile>, StoreError> {
        const PROFILES: &str = "SELECT body FROM site_profiles WHERE site = ?1 ORDER BY name LIMIT ?2";
        let params = vec![Value::Id(site.uuid()), Value::Int(PAGE_MAX as i64)];
        self.fetch(Query::new(PROFILES, params), |r| r.json()).await
    }

    /// A profile.
    ///
    /// # Errors
    /// The database fails.
    pub async fn profile(&self, id: ProfileId) -> Result<Option<SiteProfile>, StoreError> {
        const PROFILE: &str = "SELECT body FROM site_profiles WHERE id = ?1";
        Ok(self.fetch(Query::new(PROFILE, vec![Value::Id(id.uuid())]), |r| r.json()).await?.pop())
    }

    /// The profile of that name at a site.
    ///
    /// # Errors
    /// The database fails.
    pub async fn profile_by_name(&self, site: SiteId, name: &str) -> Result<Option<SiteProfile>, StoreError> {
        const PROFILE: &str = "SELECT body FROM site_profiles WHERE site = ?1 AND name = ?2";
        let params = vec![Value::Id(site.uuid()), Value::owned(name.to_owned())];
        Ok(self.fetch(Query::new(PROFILE, params), |r| r.json()).await?.pop())
    }

    /// The power-credential overrides of a site, oldest first, after the one of that id; at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn power_overrides(
        &self,
        site: SiteId,
        after: Option<OverrideId>,
        limit: usize,
    ) -> Result<Vec<PowerOverride>, StoreError> {
        const OVERRIDES: &str = "SELECT id, site, selector, value, path, status, created_at, updated_at, generation \
            FROM power_overrides WHERE site = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
        let after = after.map_or(uuid::Uuid::nil(), OverrideId::uuid);
        let params = vec![Value::Id(site.uuid()), Value::Id(after), Value::Int(limit.min(PAGE_MAX) as i64)];
        self.fetch(Query::new(OVERRIDES, params), read_override).await
    }

    /// A power-credential override.
    ///
    /// # Errors
    /// The database fails.
    pub async fn power_override(&self, id: OverrideId) -> Result<Option<PowerOverride>, StoreError> {
        const OVERRIDE: &str = "SELECT id, site, selector, value, path, status, created_at, updated_at, generation \
            FROM power_overrides WHERE id = ?1";
        Ok(self.fetch(Query::new(OVERRIDE, vec![Value::Id(id.uuid())]), read_override).await?.pop())
    }

    /// The overrides of a site that name this machine in one way or another: at most one of each selector.
    ///
    /// # Errors
    /// The database fails.
    pub async fn power_overrides_of(
        &self,
        site: SiteId,
        target: &PowerTarget<'_>,
    ) -> Result<Vec<PowerOverride>, StoreError> {
        const OVERRIDES: &str = "SELECT id, site, selector, value, path, status, created_at, updated_at, generation \
            FROM power_overrides WHERE site = ?1 AND selector = ?2 AND value = ?3";
        let mut found = Vec::new();
        for (selector, value) in target.values() {
            let params = vec![Value::Id(site.uuid()), Value::name(selector), Value::owned(value)];
            found.extend(self.fetch(Query::new(OVERRIDES, params), read_override).await?);
        }
        Ok(found)
    }

    /// The RoCE assignments of a host, by interface; at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn roce_assignments(&self, site: SiteId, hostname: &str) -> Result<Vec<RoceAssignment>, StoreError> {
        const ROCE: &str = "SELECT id, site, hostname, interface, ipv4_cidr, created_at, updated_at, generation \
            FROM roce WHERE site = ?1 AND hostname = ?2 ORDER BY interface LIMIT ?3";
        let params = vec![Value::Id(site.uuid()), Value::owned(hostname.to_owned()), Value::Int(PAGE_MAX as i64)];
        let rows = self.fetch(Query::new(ROCE, params), read_roce).await?;
        Ok(rows.into_iter().map(|row| row.assignment).collect())
    }

    /// The RoCE assignments of a site, by host and interface, after the given ones; at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn roce_rows(&self, site: SiteId, after: (&str, &str), limit: usize) -> Result<Vec<RoceRow>, StoreError> {
        const ROCE: &str = "SELECT id, site, hostname, interface, ipv4_cidr, created_at, updated_at, generation \
            FROM roce WHERE site = ?1 AND (hostname, interface) > (?2, ?3) ORDER BY hostname, interface LIMIT ?4";
        let params = vec![
            Value::Id(site.uuid()),
            Value::owned(after.0.to_owned()),
            Value::owned(after.1.to_owned()),
            Value::Int(limit.min(PAGE_MAX) as i64),
        ];
        self.fetch(Query::new(ROCE, params), read_roce).await
    }

    /// A RoCE assignment.
    ///
    /// # Errors
    /// The database fails.
    pub async fn roce_row(&self, id: RoceId) -> Result<Option<RoceRow>, StoreError> {
        const ROCE: &str = "SELECT id, site, hostname, interface, ipv4_cidr, created_at, updated_at, generation \
            FROM roce WHERE id = ?1";
        Ok(self.fetch(Query::new(ROCE, vec![Value::Id(id.uuid())]), read_roce).await?.pop())
    }
}
