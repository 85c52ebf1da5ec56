//! Fabrics, VLANs and subnets.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::{Answer, Call, MaasWorld};
use crate::maas::wire::{Params, Response};

/// The networks of a region.
pub(in crate::maas) struct Network {
    fabrics: BTreeMap<u32, Fabric>,
    vlans: BTreeMap<u32, Vlan>,
    subnets: BTreeMap<u32, Subnet>,
}

struct Fabric {
    id: u32,
    name: String,
    description: String,
}

/// A VLAN of a fabric.
#[derive(Clone)]
pub(in crate::maas) struct Vlan {
    pub(in crate::maas) id: u32,
    fabric: u32,
    vid: u32,
    name: String,
    mtu: u32,
    dhcp_on: bool,
}

/// A subnet of a VLAN.
#[derive(Clone)]
pub(in crate::maas) struct Subnet {
    pub(in crate::maas) id: u32,
    pub(in crate::maas) vlan: u32,
    pub(in crate::maas) cidr: Cidr,
    name: String,
    description: String,
    gateway: Option<Ipv4Addr>,
    dns_servers: Vec<String>,
}

/// An IPv4 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::maas) struct Cidr {
    network: u32,
    prefix: u32,
}

impl Cidr {
    /// Reads `a.b.c.d/n`; host bits are cut off.
    pub(in crate::maas) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let (address, prefix) = (address.parse::<Ipv4Addr>().ok()?, prefix.parse::<u32>().ok()?);
        (prefix <= 32).then(|| Self { network: u32::from(address) & mask(prefix), prefix })
    }

    /// Whether `address` lies in it.
    pub(in crate::maas) fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & mask(self.prefix) == self.network
    }

    /// The addresses a machine may have; both of a /31.
    pub(in crate::maas) fn hosts(self) -> impl Iterator<Item = Ipv4Addr> {
        let size = 1_u64 << (32 - self.prefix);
        let (first, last) = if size > 2 { (1, size - 1) } else { (0, size) };
        (first..last).map(move |offset| Ipv4Addr::from(self.network.wrapping_add(offset as u32)))
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.network), self.prefix)
    }
}

const fn mask(prefix: u32) -> u32 {
    if prefix == 0 { 0 } else { u32::MAX << (32 - prefix) }
}

/// The VLAN from which machines boot. spec: S5 3.1, `pxe_vlan_vid`.
const PXE_VID: u32 = 46;

impl Network {
    /// One fabric with an untagged VLAN and the one that machines boot from, on loopback addresses.
    pub(super) fn initial() -> Self {
        let fabric = Fabric { id: 0, name: "fabric-0".into(), description: String::new() };
        let vlan = |id, vid, name: &str, dhcp_on| Vlan { id, fabric: 0, vid, name: name.into(), mtu: 1500, dhcp_on };
        let vlans = [vlan(5001, 0, "untagged", false), vlan(5002, PXE_VID, "pxe", true)];
        let subnet = Subnet {
            id: 1,
            vlan: 5002,
            cidr: Cidr { network: u32::from(Ipv4Addr::new(127, 1, 0, 0)), prefix: 16 },
            name: "pxe".into(),
            description: String::new(),
            gateway: None,
            dns_servers: Vec::new(),
        };
        Self {
            fabrics: BTreeMap::from([(0, fabric)]),
            vlans: vlans.into_iter().map(|vlan| (vlan.id, vlan)).collect(),
            subnets: BTreeMap::from([(1, subnet)]),
        }
    }

    /// The subnet from which machines boot: the one with the least id on the VLAN with DHCP.
    pub(super) fn boot_subnet(&self) -> Subnet {
        let on_dhcp = |subnet: &&Subnet| self.vlans.get(&subnet.vlan).is_some_and(|vlan| vlan.dhcp_on);
        let chosen = self.subnets.values().find(on_dhcp).or_else(|| self.subnets.values().next());
        chosen.cloned().unwrap_or_else(|| Self::initial().boot_subnet())
    }

    pub(super) fn subnet(&self, id: u32) -> Option<&Subnet> {
        self.subnets.get(&id)
    }

    pub(super) fn vlan(&self, id: u32) -> Option<&Vlan> {
        self.vlans.get(&id)
    }

    /// Finds a subnet by id, CIDR or name, as MAAS' specifiers do.
    pub(super) fn find_subnet(&self, text: &str) -> Option<&Subnet> {
        let text = text.strip_prefix("cidr:").or_else(|| text.strip_prefix("id:")).unwrap_or(text);
        let by_id = text.parse().ok().and_then(|id| self.subnets.get(&id));
        let by_cidr = || self.subnets.values().find(|s| Cidr::parse(text) == Some(s.cidr));
        by_id.or_else(by_cidr).or_else(|| self.subnets.values().find(|subnet| subnet.name == text))
    }

    pub(in crate::maas) fn vlan_body(&self, id: u32) -> Value {
        let Some(vlan) = self.vlans.get(&id) else { return Value::Null };
        json!({
            "vid": vlan.vid, "mtu": vlan.mtu, "dhcp_on": vlan.dhcp_on, "external_dhcp": null, "relay_vlan": null,
            "id": vlan.id, "space": "undefined", "primary_rack": vlan.dhcp_on.then_some("rack01"),
            "secondary_rack": null, "fabric": self.fabrics.get(&vlan.fabric).map(|fabric| fabric.name.as_str()),
            "fabric_id": vlan.fabric, "name": vlan.name,
            "resource_uri": format!("/MAAS/api/2.0/vlans/{}/", vlan.id),
        })
    }

    pub(in crate::maas) fn subnet_body(&self, id: u32) -> Value {
        let Some(subnet) = self.subnets.get(&id) else { return Value::Null };
        json!({
            "name": subnet.name, "description": subnet.description, "vlan": self.vlan_body(subnet.vlan),
            "cidr": subnet.cidr.to_string(), "rdns_mode": 2, "gateway_ip": subnet.gateway,
            "dns_servers": subnet.dns_servers, "allow_dns": true, "allow_proxy": true, "active_discovery": false,
            "managed": true, "disabled_boot_architectures": [], "id": subnet.id, "space": "undefined",
            "resource_uri": format!("/MAAS/api/2.0/subnets/{}/", subnet.id),
        })
    }

    /// The gateway of a subnet.
    pub(in crate::maas) fn gateway(&self, id: u32) -> Option<Ipv4Addr> {
        self.subnets.get(&id)?.gateway
    }

    fn fabric_body(&self, fabric: &Fabric) -> Value {
        let vlans = self.vlans.values().filter(|vlan| vlan.fabric == fabric.id);
        json!({
            "class_type": null, "name": fabric.name, "id": fabric.id, "description": fabric.description,
            "vlans": vlans.map(|vlan| self.vlan_body(vlan.id)).collect::<Vec<_>>(),
            "resource_uri": format!("/MAAS/api/2.0/fabrics/{}/", fabric.id),
        })
    }

    /// The VLAN a form names by `vlan` (id), or by `fabric` and `vid`; the untagged one of fabric 0 otherwise.
    fn chosen_vlan(&self, form: &Params) -> Option<u32> {
        if let Some(id) = form.text("vlan") {
            return id.parse().ok().filter(|id| self.vlans.contains_key(id));
        }
        let (fabric, vid) = (form.number("fabric").unwrap_or(0), form.number("vid").unwrap_or(0));
        let fits = |vlan: &&Vlan| u64::from(vlan.fabric) == fabric && u64::from(vlan.vid) == vid;
        self.vlans.values().find(fits).map(|vlan| vlan.id)
    }
}

impl MaasWorld {
    pub(super) fn list_subnets(&self) -> Response {
        let bodies = self.network.subnets.keys().map(|id| self.network.subnet_body(*id));
        Response::json(200, &bodies.collect())
    }

    pub(super) fn read_subnet(&self, call: &Call<'_>) -> Answer {
        let found = self.network.find_subnet(call.arg(0)).ok_or_else(|| nothing("Subnet"))?;
        Ok(Response::json(200, &self.network.subnet_body(found.id)))
    }

    pub(super) fn create_subnet(&mut self, call: &Call<'_>) -> Answer {
        let form = &call.request.form;
        let Some(text) = form.text("cidr") else {
            return Err(Response::form_error("cidr", "This field is required."));
        };
        let Some(cidr) = Cidr::parse(text) else {
            return Err(Response::form_error("cidr", format!("'{text}' is not a valid IP network.")));
        };
        if self.network.subnets.values().any(|subnet| subnet.cidr == cidr) {
            return Err(Response::form_error("cidr", "Subnet with this Cidr already exists."));
        }
        let Some(vlan) = self.network.chosen_vlan(form) else {
            return Err(Response::form_error(
                "vlan",
                "Select a valid choice. That choice is not one of the available.",
            ));
        };
        let (gateway, dns_servers) = (read_gateway(form, cidr)?, form.list("dns_servers"));
        let name = form.text("name").map_or_else(|| cidr.to_string(), str::to_owned);
        let description = form.get("description").unwrap_or_default().to_owned();
        let id = self.new_id() + 1;
        let subnet = Subnet { id, vlan, cidr, name, description, gateway, dns_servers };
        self.network.subnets.insert(id, subnet);
        let status = self.created();
        Ok(Response::json(status, &self.network.subnet_body(id)))
    }

    pub(super) fn update_subnet(&mut self, call: &Call<'_>) -> Answer {
        let form = &call.request.form;
        let found = self.network.find_subnet(call.arg(0)).ok_or_else(|| nothing("Subnet"))?;
        let (id, cidr) = (found.id, found.cidr);
        let gateway = read_gateway(form, cidr)?;
        let vlan = form.text("vlan").map(|_| self.network.chosen_vlan(form));
        if vlan == Some(None) {
            return Err(Response::form_error(
                "vlan",
                "Select a valid choice. That choice is not one of the available.",
            ));
        }
        if let Some(subnet) = self.network.subnets.get_mut(&id) {
            subnet.gateway = gateway.or(subnet.gateway);
            subnet.vlan = vlan.flatten().unwrap_or(subnet.vlan);
            if let Some(name) = form.text("name") {
                subnet.name = name.to_owned();
            }
            if form.get("dns_servers").is_some() {
                subnet.dns_servers = form.list("dns_servers");
            }
        }
        Ok(Response::json(200, &self.network.subnet_body(id)))
    }

    pub(super) fn delete_subnet(&mut self, call: &Call<'_>) -> Answer {
        let id = self.network.find_subnet(call.arg(0)).ok_or_else(|| nothing("Subnet"))?.id;
        self.network.subnets.remove(&id);
        Ok(Response::empty(204))
    }

    pub(super) fn list_fabrics(&self) -> Response {
        let bodies = self.network.fabrics.values().map(|fabric| self.network.fabric_body(fabric));
        Response::json(200, &bodies.collect())
    }

    pub(super) fn read_fabric(&self, call: &Call<'_>) -> Answer {
        let fabric = self.network.fabrics.get(&call.number(0)).ok_or_else(|| nothing("Fabric"))?;
        Ok(Response::json(200, &self.network.fabric_body(fabric)))
    }

    /// A fabric always comes with an untagged VLAN.
    pub(super) fn create_fabric(&mut self, call: &Call<'_>) -> Response {
        let form = &call.request.form;
        let id = self.network.fabrics.keys().max().map_or(0, |id| id + 1);
        let name = form.text("name").map_or_else(|| format!("fabric-{id}"), str::to_owned);
        let fabric = Fabric { id, name, description: form.get("description").unwrap_or_default().to_owned() };
        self.network.fabrics.insert(id, fabric);
        self.add_vlan(id, 0, "untagged", 1500);
        let status = self.created();
        let body = self.network.fabrics.get(&id).map_or(Value::Null, |fabric| self.network.fabric_body(fabric));
        Response::json(status, &body)
    }

    pub(super) fn list_vlans(&self, call: &Call<'_>) -> Answer {
        let fabric = self.network.fabrics.get(&call.number(0)).ok_or_else(|| nothing("Fabric"))?;
        let vlans = self.network.vlans.values().filter(|vlan| vlan.fabric == fabric.id);
        Ok(Response::json(200, &vlans.map(|vlan| self.network.vlan_body(vlan.id)).collect()))
    }

    pub(super) fn create_vlan(&mut self, call: &Call<'_>) -> Answer {
        let fabric = self.network.fabrics.get(&call.number(0)).ok_or_else(|| nothing("Fabric"))?.id;
        let form = &call.request.form;
        let Some(vid) = form.number("vid").filter(|vid| *vid < 4095) else {
            return Err(Response::form_error("vid", "VID must be between 0 and 4094."));
        };
        let vid = vid as u32;
        if self.network.vlans.values().any(|vlan| vlan.fabric == fabric && vlan.vid == vid) {
            return Err(Response::form_error("vid", "A VLAN with the specified VID already exists in the fabric."));
        }
        let name = form.text("name").map_or_else(|| vid.to_string(), str::to_owned);
        let id = self.add_vlan(fabric, vid, &name, form.number("mtu").map_or(1500, |mtu| mtu as u32));
        let status = self.created();
        Ok(Response::json(status, &self.network.vlan_body(id)))
    }

    pub(super) fn read_vlan(&self, call: &Call<'_>) -> Answer {
        let id = self.vlan_of(call)?;
        Ok(Response::json(200, &self.network.vlan_body(id)))
    }

    pub(super) fn update_vlan(&mut self, call: &Call<'_>) -> Answer {
        let id = self.vlan_of(call)?;
        let form = &call.request.form;
        if let Some(vlan) = self.network.vlans.get_mut(&id) {
            vlan.mtu = form.number("mtu").map_or(vlan.mtu, |mtu| mtu as u32);
            vlan.dhcp_on = form.flag("dhcp_on").unwrap_or(vlan.dhcp_on);
            if let Some(name) = form.text("name") {
                vlan.name = name.to_owned();
            }
        }
        Ok(Response::json(200, &self.network.vlan_body(id)))
    }

    fn vlan_of(&self, call: &Call<'_>) -> Result<u32, Response> {
        let (fabric, vid) = (call.number(0), call.number(1));
        let found = self.network.vlans.values().find(|vlan| vlan.fabric == fabric && vlan.vid == vid);
        found.map(|vlan| vlan.id).ok_or_else(|| nothing("VLAN"))
    }

    fn add_vlan(&mut self, fabric: u32, vid: u32, name: &str, mtu: u32) -> u32 {
        let id = self.network.vlans.keys().max().map_or(5001, |id| id + 1);
        self.network.vlans.insert(id, Vlan { id, fabric, vid, name: name.to_owned(), mtu, dhcp_on: false });
        id
    }
}

fn read_gateway(form: &Params, cidr: Cidr) -> Result<Option<Ipv4Addr>, Response> {
    let Some(text) = form.text("gateway_ip") else { return Ok(None) };
    let address = text.parse().ok().filter(|address| cidr.contains(*address));
    address.map(Some).ok_or_else(|| Response::form_error("gateway_ip", "gateway IP must be within CIDR range."))
}

/// 404 for a row of this kind.
pub(super) fn nothing(kind: &str) -> Response {
    Response::text(404, format!("No {kind} matches the given query."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_31_has_two_hosts_and_a_larger_network_leaves_out_its_ends() {
        let hosts = |text| Cidr::parse(text).map(|cidr| cidr.hosts().count());
        assert_eq!(hosts("172.30.9.61/31"), Some(2));
        assert_eq!(hosts("10.0.0.0/30"), Some(2));
        assert_eq!(hosts("10.0.0.0/24"), Some(254));
        assert_eq!(hosts("10.0.0.0/33"), None);
        assert_eq!(Cidr::parse("172.30.9.61/31").map(|cidr| cidr.to_string()), Some("172.30.9.60/31".into()));
    }
}
