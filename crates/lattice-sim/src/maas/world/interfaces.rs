//! Network interfaces of machines and their links. spec: MAAS contract section 6, "interfaces".

use std::net::Ipv4Addr;

use super::network::nothing;
use super::{Answer, Call, MaasWorld};
use crate::maas::body;
use crate::maas::node::{Interface, Link, LinkMode};
use crate::maas::status::EDITABLE;
use crate::maas::wire::{Params, Response};

impl MaasWorld {
    pub(super) fn list_interfaces(&self, call: &Call<'_>) -> Answer {
        let node = self.node(call.arg(0))?;
        let bodies = node.interfaces.iter().map(|nic| body::interface(node, nic, &self.network, false));
        Ok(Response::json(200, &bodies.collect()))
    }

    pub(super) fn read_interface(&self, call: &Call<'_>) -> Answer {
        let node = self.node(call.arg(0))?;
        let nic = self.interface(call)?;
        Ok(Response::json(200, &body::interface(node, nic, &self.network, false)))
    }

    pub(super) fn update_interface(&mut self, call: &Call<'_>) -> Answer {
        self.check_editable(call, "update")?;
        let form = &call.request.form;
        let vlan = match form.text("vlan") {
            Some(text) => {
                let found = text.parse().ok().and_then(|id| self.network.vlan(id)).map(|vlan| vlan.id);
                Some(found.ok_or_else(|| Response::form_error("vlan", "Select a valid choice."))?)
            }
            None => None,
        };
        let nic = self.interface_mut(call)?;
        if let Some(name) = form.text("name") {
            nic.name = name.to_owned();
        }
        if let Some(mac) = form.text("mac_address") {
            nic.mac = mac.to_ascii_lowercase();
        }
        nic.vlan = vlan.or(nic.vlan);
        nic.mtu = form.number("mtu").map(|mtu| mtu as u32).or(nic.mtu);
        if form.get("tags").is_some() {
            nic.tags = form.list("tags");
        }
        self.link_record(call.arg(0));
        self.read_interface(call)
    }

    pub(super) fn link_subnet(&mut self, call: &Call<'_>) -> Answer {
        self.check_editable(call, "link subnet to")?;
        let form = &call.request.form;
        let Some(mode) = form.text("mode").and_then(LinkMode::parse) else {
            return Err(Response::form_error(
                "mode",
                "Select a valid choice. It is one of AUTO, DHCP, STATIC, LINK_UP.",
            ));
        };
        let force = form.flag("force").unwrap_or(false);
        let nic = self.interface(call)?;
        let (wired_to, links) = (nic.vlan, nic.links.len());
        if mode == LinkMode::LinkUp && links > 0 && !force {
            let text =
                "Cannot configure interface to link up (with no IP address) while other links are already configured.";
            return Err(Response::form_error("mode", text));
        }
        let subnet = self.chosen_subnet(form, mode, wired_to, force)?;
        let address = self.chosen_address(form, mode, subnet)?;
        let vlan = subnet.and_then(|id| self.network.subnet(id)).map(|subnet| subnet.vlan);
        let id = self.new_id();
        let nic = self.interface_mut(call)?;
        if force {
            nic.links.clear();
        }
        nic.links.push(Link { id, mode, subnet, address });
        nic.vlan = vlan.or(nic.vlan);
        self.read_interface(call)
    }

    pub(super) fn unlink_subnet(&mut self, call: &Call<'_>) -> Answer {
        self.check_editable(call, "unlink subnet from")?;
        let Some(id) = call.request.form.number("id") else {
            return Err(Response::form_error("id", "This field is required."));
        };
        let nic = self.interface_mut(call)?;
        let before = nic.links.len();
        nic.links.retain(|link| u64::from(link.id) != id);
        if nic.links.len() == before {
            return Err(Response::form_error("id", "Select a valid choice. That choice is not one of the available."));
        }
        self.read_interface(call)
    }

    pub(super) fn disconnect(&mut self, call: &Call<'_>) -> Answer {
        self.check_editable(call, "disconnect")?;
        let nic = self.interface_mut(call)?;
        nic.links.clear();
        nic.vlan = None;
        self.read_interface(call)
    }

    /// The subnet a form names. It must lie on the VLAN the interface is wired to, unless that is unknown or forced.
    fn chosen_subnet(
        &self,
        form: &Params,
        mode: LinkMode,
        wired_to: Option<u32>,
        force: bool,
    ) -> Result<Option<u32>, Response> {
        let Some(text) = form.text("subnet") else {
            return match mode {
                LinkMode::Auto | LinkMode::Static => Err(Response::form_error("subnet", "This field is required.")),
                LinkMode::Dhcp | LinkMode::LinkUp => Ok(None),
            };
        };
        let found = self.network.find_subnet(text);
        let fits = found.filter(|subnet| force || wired_to.is_none_or(|vlan| vlan == subnet.vlan));
        fits.map(|subnet| Some(subnet.id)).ok_or_else(|| {
            let text = "Select a valid choice. That choice is not one of the available choices.";
            Response::form_error("subnet", text)
        })
    }

    /// The address of a static link: the one given, or the first free one.
    fn chosen_address(&self, form: &Params, mode: LinkMode, subnet: Option<u32>) -> Result<Option<Ipv4Addr>, Response> {
        let given = form.text("ip_address");
        let subnet = match (mode, subnet.and_then(|id| self.network.subnet(id))) {
            (LinkMode::Static, Some(subnet)) => subnet,
            (LinkMode::Static | LinkMode::Auto | LinkMode::Dhcp | LinkMode::LinkUp, _) => {
                return match given {
                    Some(_) => Err(Response::form_error("ip_address", "Cannot be set for this mode.")),
                    None => Ok(None),
                };
            }
        };
        let Some(text) = given else {
            let free = subnet.cidr.hosts().find(|address| !self.is_used(*address));
            let full = || Response::form_error("subnet", "No more addresses are available in this subnet.");
            return free.map(Some).ok_or_else(full);
        };
        let Some(address) = text.parse().ok().filter(|address| subnet.cidr.contains(*address)) else {
            let text = format!("IP address is not in the given subnet '{}'.", subnet.cidr);
            return Err(Response::form_error("ip_address", text));
        };
        if self.is_used(address) {
            return Err(Response::form_error("ip_address", "IP address is already in use."));
        }
        Ok(Some(address))
    }

    fn is_used(&self, address: Ipv4Addr) -> bool {
        let mut links = self.nodes.values().flat_map(|node| node.interfaces.iter().flat_map(|nic| &nic.links));
        links.any(|link| link.address == Some(address))
    }

    fn check_editable(&self, call: &Call<'_>, verb: &str) -> Result<(), Response> {
        self.interface(call)?;
        if EDITABLE.contains(&self.node(call.arg(0))?.status) {
            return Ok(());
        }
        let text = format!("Cannot {verb} interface because the machine is not New, Ready, Allocated, or Broken.");
        Err(Response::text(409, text))
    }

    fn interface(&self, call: &Call<'_>) -> Result<&Interface, Response> {
        let found = self.node(call.arg(0))?.interfaces.iter().find(|nic| nic.id == call.number(1));
        found.ok_or_else(|| nothing("Interface"))
    }

    fn interface_mut(&mut self, call: &Call<'_>) -> Result<&mut Interface, Response> {
        let found = self.node_mut(call.arg(0))?.interfaces.iter_mut().find(|nic| nic.id == call.number(1));
        found.ok_or_else(|| nothing("Interface"))
    }
}
