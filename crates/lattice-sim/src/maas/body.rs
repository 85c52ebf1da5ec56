//! The JSON bodies of machines, with the keys and types of the recorded samples.

use serde_json::{Map, Value, json};

use super::node::{BlockDevice, Interface, Link, Node};
use super::status::NodeStatus;
use super::world::event_date;
use super::world::{Groups, Network};

/// The whole machine. `hide_address` leaves out what a deployed system would report about itself.
pub(super) fn machine(node: &Node, network: &Network, groups: &Groups, hide_address: bool) -> Value {
    let interfaces: Vec<Value> =
        node.interfaces.iter().map(|nic| interface(node, nic, network, hide_address)).collect();
    let boot_interface = node.boot_interface().map(|nic| interface(node, nic, network, hide_address));
    let disks: Vec<Value> = node.disks.iter().map(|disk_of| disk(node, disk_of)).collect();
    let boot_disk = node.disks.iter().find(|disk| Some(disk.id) == node.boot_disk).map(|boot| disk(node, boot));
    let mut body = Map::new();
    put(&mut body, identity(node, groups));
    put(&mut body, status(node));
    put(&mut body, hardware(node));
    put(&mut body, tests(node));
    put(&mut body, system(node));
    put(
        &mut body,
        json!({
            "interface_set": interfaces,
            "boot_interface": boot_interface,
            "ip_addresses": addresses(node, hide_address),
            "default_gateways": gateways(node, network),
            "address_ttl": null,
            "disable_ipv4": false,
            "blockdevice_set": disks,
            "physicalblockdevice_set": disks,
            "virtualblockdevice_set": [],
            "boot_disk": boot_disk,
            "storage": storage_mb(node),
            "raids": [], "volume_groups": [], "bcaches": [], "cache_sets": [], "special_filesystems": [],
        }),
    );
    Value::Object(body)
}

/// One interface, as in `interface_set` and on its own.
pub(super) fn interface(node: &Node, nic: &Interface, network: &Network, hide_address: bool) -> Value {
    let discovered = nic
        .discovered
        .map(|(address, subnet)| json!([{ "subnet": network.subnet_body(subnet), "ip_address": address }]));
    let links: Vec<Value> = nic.links.iter().map(|of| link(of, network, hide_address)).collect();
    let speed = nic.speed_mbps;
    json!({
        "id": nic.id, "name": nic.name, "type": "physical", "mac_address": nic.mac, "system_id": node.system_id,
        "enabled": true, "link_connected": true, "link_speed": speed, "interface_speed": speed,
        "vlan": nic.vlan.map(|id| network.vlan_body(id)), "links": links, "discovered": discovered,
        "vendor": nic.vendor, "product": nic.product, "firmware_version": nic.firmware,
        "effective_mtu": nic.mtu.unwrap_or(1500), "tags": nic.tags, "params": {}, "parents": [], "children": [],
        "numa_node": 0, "sriov_max_vf": 0,
        "resource_uri": format!("/MAAS/api/2.0/nodes/{}/interfaces/{}/", node.system_id, nic.id),
    })
}

/// One block device, as in `blockdevice_set` and on its own.
pub(super) fn disk(node: &Node, disk: &BlockDevice) -> Value {
    let boots = Some(disk.id) == node.boot_disk;
    let partitioned = boots && node.layout == "flat";
    let partition_size = disk.size_bytes.saturating_sub(8 * 1024 * 1024);
    let partitions = if partitioned { vec![partition(node, disk, partition_size)] } else { Vec::new() };
    let used_for = if partitioned { "GPT partitioned with 1 partition" } else { "Unused" };
    let used = if partitioned { partition_size } else { 0 };
    json!({
        "id": disk.id, "name": disk.name, "type": "physical", "model": disk.model, "serial": disk.serial,
        "size": disk.size_bytes, "block_size": 512, "id_path": disk.id_path, "uuid": null,
        "path": format!("/dev/disk/by-dname/{}", disk.name), "tags": disk.tags, "system_id": node.system_id,
        "firmware_version": null, "partition_table_type": partitioned.then_some("GPT"), "partitions": partitions,
        "filesystem": null, "used_for": used_for, "used_size": used, "available_size": disk.size_bytes - used,
        "numa_node": 0, "storage_pool": null,
        "resource_uri": format!("/MAAS/api/2.0/nodes/{}/blockdevices/{}/", node.system_id, disk.id),
    })
}

/// The one domain of the region.
pub(super) fn domain(records: usize) -> Value {
    json!({
        "authoritative": true, "ttl": null, "is_default": true, "id": 0, "resource_record_count": records,
        "name": "maas", "resource_uri": "/MAAS/api/2.0/domains/0/",
    })
}

fn put(body: &mut Map<String, Value>, part: Value) {
    if let Value::Object(part) = part {
        body.extend(part);
    }
}

fn identity(node: &Node, groups: &Groups) -> Value {
    json!({
        "system_id": node.system_id,
        "hostname": node.hostname,
        "fqdn": format!("{}.maas", node.hostname),
        "description": node.description,
        "domain": domain(0),
        "zone": groups.zone_body(&node.zone),
        "pool": groups.pool_body(node.pool),
        "tag_names": node.tags,
        "owner": node.owner,
        "owner_data": node.annotations,
        "workload_annotations": node.annotations,
        "locked": node.locked,
        "node_type": 0,
        "node_type_name": "Machine",
        "is_dpu": false,
        "parent": null,
        "pod": null,
        "virtualmachine_id": null,
        "resource_uri": format!("/MAAS/api/2.0/machines/{}/", node.system_id),
    })
}

fn status(node: &Node) -> Value {
    json!({
        "status": node.status.number(),
        "status_name": node.status.row().label,
        "status_message": node.status_message,
        "status_action": node.status_message.as_ref().map(|_| ""),
        "error_description": node.error_description,
        "power_state": node.power.state.name(),
        "power_type": node.power.kind,
        "netboot": node.status != NodeStatus::Deployed,
        "bios_boot_method": node.found.as_ref().map(|_| "uefi"),
    })
}

fn hardware(node: &Node) -> Value {
    let unknown = "Unknown";
    let found = node.found.as_ref();
    let memory_mib = found.map_or(0, |found| found.memory_mib);
    let cores = found.map_or(0, |found| found.cpu_count);
    let vendor = found.map_or(unknown, |found| found.vendor.as_str());
    let product = found.map_or(unknown, |found| found.product.as_str());
    let serial = found.map_or(unknown, |found| found.serial.as_str());
    json!({
        "architecture": node.architecture,
        "cpu_count": cores,
        "cpu_speed": found.map_or(0, |_| 3100),
        "memory": memory_mib,
        "swap_size": null,
        "min_hwe_kernel": "",
        "hardware_uuid": null,
        "numanode_set": [{
            "index": 0, "memory": memory_mib, "cores": (0..cores).collect::<Vec<u32>>(), "hugepages_set": [],
        }],
        "hardware_info": {
            "system_vendor": vendor, "system_product": product, "system_family": unknown,
            "system_version": unknown, "system_sku": unknown, "system_serial": serial,
            "cpu_model": found.map_or(unknown, |found| found.cpu_model.as_str()),
            "mainboard_vendor": vendor, "mainboard_product": unknown, "mainboard_serial": unknown,
            "mainboard_version": unknown, "mainboard_firmware_vendor": unknown, "mainboard_firmware_date": unknown,
            "mainboard_firmware_version": unknown, "chassis_vendor": vendor, "chassis_type": unknown,
            "chassis_serial": serial, "chassis_version": unknown,
        },
    })
}

fn tests(node: &Node) -> Value {
    let (commissioning, commissioning_name) = match node.commissioning_passed {
        Some(true) => (2, "Passed"),
        Some(false) => (3, "Failed"),
        None if node.status == NodeStatus::Commissioning => (0, "Pending"),
        None => (-1, "Unknown"),
    };
    let mut body = json!({
        "commissioning_status": commissioning,
        "commissioning_status_name": commissioning_name,
        "current_commissioning_result_id": node.commissioning_result,
        "current_testing_result_id": null,
        "current_installation_result_id": node.installation_result,
    });
    for kind in ["testing", "cpu_test", "memory_test", "storage_test", "network_test", "interface_test", "other_test"] {
        body[format!("{kind}_status")] = json!(-1);
        body[format!("{kind}_status_name")] = json!("Unknown");
    }
    body
}

fn system(node: &Node) -> Value {
    let system = node.system.as_ref();
    let sync = system.and_then(|system| system.sync.as_ref());
    json!({
        "osystem": system.map_or("", |system| system.osystem.as_str()),
        "distro_series": system.map_or("", |system| system.series.as_str()),
        "hwe_kernel": system.map(|_| "ga-24.04"),
        "ephemeral_deploy": system.is_some_and(|system| system.ephemeral),
        "enable_kernel_crash_dump": false,
        "enable_hw_sync": sync.is_some(),
        "sync_interval": sync.map(|sync| sync.interval_s),
        "last_sync": sync.and_then(|sync| sync.last).map(event_date),
        "next_sync": sync.and_then(|sync| sync.next).map(event_date),
    })
}

fn link(link: &Link, network: &Network, hide_address: bool) -> Value {
    let mut body = json!({ "id": link.id, "mode": link.mode.name() });
    if let Some(address) = link.address.filter(|_| !hide_address) {
        body["ip_address"] = json!(address);
    }
    if let Some(subnet) = link.subnet {
        body["subnet"] = network.subnet_body(subnet);
    }
    body
}

fn partition(node: &Node, disk: &BlockDevice, size: u64) -> Value {
    let base = format!("/MAAS/api/2.0/nodes/{}/blockdevices/{}", node.system_id, disk.id);
    json!({
        "id": disk.id, "device_id": disk.id, "system_id": node.system_id, "type": "partition", "size": size,
        "uuid": format!("{:08x}-0000-4000-8000-{:012x}", node.number, disk.id), "bootable": false, "tags": [],
        "path": format!("/dev/disk/by-dname/{}-part2", disk.name),
        "used_for": "ext4 formatted filesystem mounted at /",
        "filesystem": {
            "fstype": "ext4", "label": "root", "mount_point": "/", "mount_options": null,
            "uuid": format!("{:08x}-0000-4000-9000-{:012x}", node.number, disk.id),
        },
        "resource_uri": format!("{base}/partition/{}", disk.id),
    })
}

fn addresses(node: &Node, hide_address: bool) -> Vec<String> {
    if hide_address {
        return Vec::new();
    }
    let links = node.interfaces.iter().flat_map(|nic| &nic.links);
    links.filter_map(|link| link.address).map(|address| address.to_string()).collect()
}

fn gateways(node: &Node, network: &Network) -> Value {
    let subnets = node.interfaces.iter().flat_map(|nic| &nic.links).filter_map(|link| link.subnet);
    let gateway = subnets.filter_map(|subnet| network.gateway(subnet)).next();
    json!({
        "ipv4": { "gateway_ip": gateway, "link_id": null },
        "ipv6": { "gateway_ip": null, "link_id": null },
    })
}

/// Megabytes of all disks, as MAAS counts them.
fn storage_mb(node: &Node) -> f64 {
    let bytes: u64 = node.disks.iter().map(|disk| disk.size_bytes).sum();
    bytes as f64 / 1_000_000.0
}
