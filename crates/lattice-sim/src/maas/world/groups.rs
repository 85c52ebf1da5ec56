//! Pools, zones, domains and tags: what machines are sorted into.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::network::nothing;
use super::{Answer, Call, MaasWorld};
use crate::maas::quirk::Quirk;
use crate::maas::wire::Response;

/// The groups of a region.
pub(in crate::maas) struct Groups {
    pools: BTreeMap<u32, Group>,
    zones: BTreeMap<String, (u32, Group)>,
    tags: BTreeMap<String, Tag>,
}

#[derive(Clone)]
struct Group {
    name: String,
    description: String,
}

struct Tag {
    comment: String,
    definition: String,
    kernel_opts: String,
}

impl Groups {
    pub(super) fn initial() -> Self {
        let pool = Group { name: "default".into(), description: "Default pool".into() };
        let zone = Group { name: "default".into(), description: String::new() };
        Self {
            pools: BTreeMap::from([(0, pool)]),
            zones: BTreeMap::from([("default".into(), (1, zone))]),
            tags: BTreeMap::new(),
        }
    }

    pub(in crate::maas) fn pool_body(&self, id: u32) -> Value {
        let Some(pool) = self.pools.get(&id) else { return Value::Null };
        json!({
            "name": pool.name, "description": pool.description, "id": id,
            "resource_uri": format!("/MAAS/api/2.0/resourcepool/{id}/"),
        })
    }

    pub(in crate::maas) fn zone_body(&self, name: &str) -> Value {
        let Some((id, zone)) = self.zones.get(name) else { return Value::Null };
        json!({
            "name": zone.name, "description": zone.description, "id": id,
            "resource_uri": format!("/MAAS/api/2.0/zones/{name}/"),
        })
    }

    fn tag_body(&self, name: &str) -> Value {
        let Some(tag) = self.tags.get(name) else { return Value::Null };
        json!({
            "name": name, "comment": tag.comment, "definition": tag.definition, "kernel_opts": tag.kernel_opts,
            "resource_uri": format!("/MAAS/api/2.0/tags/{name}/"),
        })
    }
}

impl MaasWorld {
    pub(super) fn pool_name(&self, id: u32) -> String {
        self.groups.pools.get(&id).map(|pool| pool.name.clone()).unwrap_or_default()
    }

    pub(super) fn pool_by_name(&self, name: &str) -> Result<u32, Response> {
        let found = self.groups.pools.iter().find(|(_, pool)| pool.name == name).map(|(id, _)| *id);
        found.ok_or_else(|| Response::form_error("pool", "Select a valid choice. That is not one of the pools."))
    }

    pub(super) fn zone_by_name(&self, name: &str) -> Result<String, Response> {
        let found = self.groups.zones.contains_key(name).then(|| name.to_owned());
        found.ok_or_else(|| Response::form_error("zone", "Select a valid choice. That is not one of the zones."))
    }

    pub(super) fn list_pools(&self) -> Response {
        Response::json(200, &self.groups.pools.keys().map(|id| self.groups.pool_body(*id)).collect())
    }

    pub(super) fn create_pool(&mut self, call: &Call<'_>) -> Answer {
        let group = self.read_group(call)?;
        if self.groups.pools.values().any(|pool| pool.name == group.name) {
            return Err(Response::form_error("name", "Resource pool with this Name already exists."));
        }
        let id = self.groups.pools.keys().max().map_or(0, |id| id + 1);
        self.groups.pools.insert(id, group);
        let status = self.created();
        Ok(Response::json(status, &self.groups.pool_body(id)))
    }

    pub(super) fn read_pool(&self, call: &Call<'_>) -> Answer {
        let id = self.pool_id(call)?;
        Ok(Response::json(200, &self.groups.pool_body(id)))
    }

    pub(super) fn update_pool(&mut self, call: &Call<'_>) -> Answer {
        let id = self.pool_id(call)?;
        let form = &call.request.form;
        if let Some(pool) = self.groups.pools.get_mut(&id) {
            pool.name = form.text("name").map_or_else(|| pool.name.clone(), str::to_owned);
            pool.description = form.get("description").map_or_else(|| pool.description.clone(), str::to_owned);
        }
        Ok(Response::json(200, &self.groups.pool_body(id)))
    }

    pub(super) fn delete_pool(&mut self, call: &Call<'_>) -> Answer {
        let id = self.pool_id(call)?;
        if id == 0 {
            return Err(Response::text(400, "Default pool cannot be deleted."));
        }
        if self.nodes.values().any(|node| node.pool == id) {
            return Err(Response::text(400, "Cannot delete resource pool while it has machines."));
        }
        self.groups.pools.remove(&id);
        Ok(Response::empty(204))
    }

    fn pool_id(&self, call: &Call<'_>) -> Result<u32, Response> {
        Some(call.number(0)).filter(|id| self.groups.pools.contains_key(id)).ok_or_else(|| nothing("ResourcePool"))
    }

    pub(super) fn list_zones(&self) -> Response {
        Response::json(200, &self.groups.zones.keys().map(|name| self.groups.zone_body(name)).collect())
    }

    pub(super) fn create_zone(&mut self, call: &Call<'_>) -> Answer {
        let group = self.read_group(call)?;
        let name = group.name.clone();
        if self.groups.zones.contains_key(&name) {
            return Err(Response::form_error("name", "Physical zone with this Name already exists."));
        }
        let id = self.groups.zones.len() as u32 + 1;
        self.groups.zones.insert(name.clone(), (id, group));
        let status = self.created();
        Ok(Response::json(status, &self.groups.zone_body(&name)))
    }

    pub(super) fn read_zone(&self, call: &Call<'_>) -> Answer {
        let name = self.zone_name(call)?;
        Ok(Response::json(200, &self.groups.zone_body(&name)))
    }

    pub(super) fn delete_zone(&mut self, call: &Call<'_>) -> Answer {
        let name = self.zone_name(call)?;
        if name == "default" {
            return Err(Response::text(400, "This zone is the default zone, it cannot be deleted."));
        }
        for node in self.nodes.values_mut().filter(|node| node.zone == name) {
            node.zone = "default".to_owned();
        }
        self.groups.zones.remove(&name);
        Ok(Response::empty(204))
    }

    fn zone_name(&self, call: &Call<'_>) -> Result<String, Response> {
        let name = call.arg(0).to_owned();
        self.groups.zones.contains_key(&name).then_some(name).ok_or_else(|| nothing("Zone"))
    }

    pub(super) fn list_tags(&self) -> Response {
        Response::json(200, &self.groups.tags.keys().map(|name| self.groups.tag_body(name)).collect())
    }

    pub(super) fn create_tag(&mut self, call: &Call<'_>) -> Answer {
        let form = &call.request.form;
        let name = self.read_group(call)?.name;
        if self.groups.tags.contains_key(&name) {
            return Err(Response::form_error("name", "Tag with this Name already exists."));
        }
        let text = |key: &str| form.get(key).unwrap_or_default().to_owned();
        let tag = Tag { comment: text("comment"), definition: text("definition"), kernel_opts: text("kernel_opts") };
        self.groups.tags.insert(name.clone(), tag);
        let status = self.created();
        Ok(Response::json(status, &self.groups.tag_body(&name)))
    }

    pub(super) fn read_tag(&self, call: &Call<'_>) -> Answer {
        let name = self.tag_name(call)?;
        Ok(Response::json(200, &self.groups.tag_body(&name)))
    }

    pub(super) fn delete_tag(&mut self, call: &Call<'_>) -> Answer {
        let name = self.tag_name(call)?;
        for node in self.nodes.values_mut() {
            node.tags.remove(&name);
        }
        self.groups.tags.remove(&name);
        Ok(Response::empty(204))
    }

    pub(super) fn tagged_machines(&mut self, call: &Call<'_>) -> Answer {
        let name = self.tag_name(call)?;
        let tagged = self.nodes.values().filter(|node| node.tags.contains(&name));
        let tagged: Vec<String> = tagged.map(|node| node.system_id.clone()).collect();
        let bodies = tagged.iter().map(|id| self.machine_body(id)).collect::<Result<Vec<_>, _>>()?;
        Ok(Response::json(200, &Value::Array(bodies)))
    }

    /// Adds and removes a tag. Unknown machines do not count and do not fail the call.
    pub(super) fn tag_nodes(&mut self, call: &Call<'_>) -> Answer {
        let name = self.tag_name(call)?;
        let form = &call.request.form;
        let (add, remove) = (form.list("add"), form.list("remove"));
        let unknown: BTreeSet<&String> = add.iter().chain(&remove).filter(|id| !self.nodes.contains_key(*id)).collect();
        if !unknown.is_empty() && !self.quirks.meet(Quirk::TagUnknownAddsZero) {
            return Err(nothing("Machine"));
        }
        let mut change = |ids: &[String], add: bool| {
            let mut changed = 0;
            for id in ids {
                let Some(node) = self.nodes.get_mut(id) else { continue };
                changed += u32::from(if add { node.tags.insert(name.clone()) } else { node.tags.remove(&name) });
            }
            changed
        };
        let body = json!({ "added": change(&add, true), "removed": change(&remove, false) });
        Ok(Response::json(200, &body))
    }

    fn tag_name(&self, call: &Call<'_>) -> Result<String, Response> {
        let name = call.arg(0).to_owned();
        self.groups.tags.contains_key(&name).then_some(name).ok_or_else(|| nothing("Tag"))
    }

    pub(super) fn list_domains(&self) -> Response {
        let records = self.nodes.len();
        Response::json(200, &json!([crate::maas::body::domain(records)]))
    }

    /// Name and description, both from a form.
    fn read_group(&self, call: &Call<'_>) -> Result<Group, Response> {
        let form = &call.request.form;
        let Some(name) = form.text("name") else {
            return Err(Response::form_error("name", "This field is required."));
        };
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c)) {
            return Err(Response::form_error("name", "Enter a valid value."));
        }
        Ok(Group { name: name.to_owned(), description: form.get("description").unwrap_or_default().to_owned() })
    }
}
