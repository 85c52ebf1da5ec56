//! Block devices and storage layouts.

use super::network::nothing;
use super::{Answer, Call, MaasWorld};
use crate::maas::body;
use crate::maas::status::NodeStatus;
use crate::maas::wire::Response;

/// Layouts MAAS knows.
const LAYOUTS: [&str; 7] = ["flat", "lvm", "bcache", "vmfs6", "vmfs7", "custom", "blank"];

impl MaasWorld {
    pub(super) fn list_disks(&self, call: &Call<'_>) -> Answer {
        let node = self.node(call.arg(0))?;
        Ok(Response::json(200, &node.disks.iter().map(|disk| body::disk(node, disk)).collect()))
    }

    pub(super) fn read_disk(&self, call: &Call<'_>) -> Answer {
        let node = self.node(call.arg(0))?;
        let disk = node.disks.iter().find(|disk| disk.id == call.number(1));
        let disk = disk.ok_or_else(|| nothing("BlockDevice"))?;
        Ok(Response::json(200, &body::disk(node, disk)))
    }

    pub(super) fn set_boot_disk(&mut self, call: &Call<'_>) -> Answer {
        self.read_disk(call)?;
        self.check_storage_editable(call.arg(0), "set as boot disk")?;
        self.node_mut(call.arg(0))?.boot_disk = Some(call.number(1));
        self.read_disk(call)
    }

    pub(super) fn set_storage_layout(&mut self, call: &Call<'_>) -> Answer {
        let form = &call.request.form;
        let Some(layout) = form.text("storage_layout") else {
            return Err(Response::form_error("storage_layout", "This field is required."));
        };
        self.check_storage_editable(call.arg(0), "change the storage layout")?;
        if !LAYOUTS.contains(&layout) {
            let text = format!("Select a valid choice. {layout} is not one of the available choices.");
            return Err(Response::form_error("storage_layout", text));
        }
        let root = form.number("root_device");
        let node = self.node_mut(call.arg(0))?;
        if node.disks.is_empty() {
            let text = "Failed to configure storage layout: Node doesn't have any storage devices to configure.";
            return Err(Response::text(400, text));
        }
        let known = root.is_none_or(|id| node.disks.iter().any(|disk| u64::from(disk.id) == id));
        if !known {
            return Err(Response::form_error("root_device", "Select a valid choice."));
        }
        node.layout = layout.to_owned();
        self.read_machine(call.arg(0))
    }

    fn check_storage_editable(&self, system_id: &str, verb: &str) -> Result<(), Response> {
        let status = self.node(system_id)?.status;
        if matches!(status, NodeStatus::Ready | NodeStatus::Allocated) {
            return Ok(());
        }
        Err(Response::text(409, format!("Cannot {verb} because the machine is not Ready or Allocated.")))
    }
}
