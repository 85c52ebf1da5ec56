//! Every operation of the simulated region as one table. spec: MAAS contract sections 6 and 8.

use super::wire::Method::{self, Delete, Get, Post, Put};
use super::wire::Request;

macro_rules! endpoints {
    ($($name:ident $method:ident $path:literal $op:tt $fields:tt,)+) => {
        /// An operation of the region; the machine side included.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "each variant is the row of the table with its path and operation")]
        pub enum Endpoint { $($name,)+ }

        /// The table of operations.
        pub const ROUTES: &[Route] = &[
            $(Route { endpoint: Endpoint::$name, method: $method, path: $path, op: $op, fields: $fields },)+
        ];
    };
}

/// One row: which call leads to which operation, and what it may carry.
pub struct Route {
    /// The operation.
    pub endpoint: Endpoint,
    /// Its method.
    pub method: Method,
    /// Path below the API root; `{}` stands for one segment.
    pub path: &'static str,
    /// The `op` parameter, if the call needs one.
    pub op: Option<&'static str>,
    /// The parameters it knows.
    pub fields: Fields,
}

/// The parameters an operation knows.
#[derive(Debug, Clone, Copy)]
pub enum Fields {
    /// These names.
    Only(&'static [&'static str]),
    /// These names, and any with the prefix.
    Prefixed(&'static str, &'static [&'static str]),
    /// Any name: keys are data.
    Any,
}

impl Fields {
    /// Whether a parameter of this name is known.
    pub fn know(self, name: &str) -> bool {
        match self {
            Self::Only(names) => names.contains(&name),
            Self::Prefixed(prefix, names) => name.starts_with(prefix) || names.contains(&name),
            Self::Any => true,
        }
    }
}

use Fields::{Any, Only, Prefixed};

const NONE: Fields = Only(&[]);
const COMMENT: Fields = Only(&["comment"]);
const FILTERS: Fields = Only(&[
    "hostname",
    "cpu_count",
    "mem",
    "mac_address",
    "id",
    "domain",
    "zone",
    "pool",
    "agent_name",
    "fabrics",
    "not_fabrics",
    "vlans",
    "not_vlans",
    "subnets",
    "not_subnets",
    "link_speed",
    "status",
    "pod",
    "not_pod",
    "pod_type",
    "not_pod_type",
    "devices",
]);
const CREATE: Fields = Prefixed(
    "power_parameters",
    &[
        "architecture",
        "min_hwe_kernel",
        "subarchitecture",
        "mac_addresses",
        "hostname",
        "description",
        "domain",
        "power_type",
        "commission",
        "deployed",
        "enable_ssh",
        "skip_bmc_config",
        "skip_networking",
        "skip_storage",
        "commissioning_scripts",
        "testing_scripts",
        "is_dpu",
    ],
);
const UPDATE: Fields = Prefixed(
    "power_parameters",
    &[
        "hostname",
        "description",
        "domain",
        "architecture",
        "min_hwe_kernel",
        "power_type",
        "pool",
        "zone",
        "swap_size",
        "disable_ipv4",
        "cpu_count",
        "memory",
    ],
);
const ALLOCATE: Fields = Only(&[
    "name",
    "system_id",
    "arch",
    "cpu_count",
    "mem",
    "tags",
    "not_tags",
    "zone",
    "not_in_zone",
    "pool",
    "not_in_pool",
    "pod",
    "not_pod",
    "pod_type",
    "not_pod_type",
    "subnets",
    "not_subnets",
    "storage",
    "interfaces",
    "fabrics",
    "not_fabrics",
    "fabric_classes",
    "not_fabric_classes",
    "agent_name",
    "comment",
    "bridge_all",
    "bridge_stp",
    "bridge_fd",
    "devices",
    "dry_run",
    "verbose",
]);
const DEPLOY: Fields = Only(&[
    "user_data",
    "distro_series",
    "hwe_kernel",
    "agent_name",
    "bridge_all",
    "bridge_type",
    "bridge_stp",
    "bridge_fd",
    "comment",
    "install_rackd",
    "install_kvm",
    "register_vmhost",
    "ephemeral_deploy",
    "enable_kernel_crash_dump",
    "vcenter_registration",
    "enable_hw_sync",
]);
const COMMISSION: Fields = Any; // the parameters of the scripts are `<script>_<parameter>`
const RELEASE: Fields = Only(&["comment", "erase", "secure_erase", "quick_erase", "force", "scripts"]);
const LAYOUT: Fields = Only(&[
    "storage_layout",
    "boot_size",
    "root_size",
    "root_device",
    "vg_name",
    "lv_name",
    "lv_size",
    "cache_device",
    "cache_mode",
    "cache_size",
    "cache_no_part",
]);
const INTERFACE: Fields = Only(&[
    "name",
    "mac_address",
    "tags",
    "vlan",
    "mtu",
    "accept_ra",
    "link_connected",
    "interface_speed",
    "link_speed",
    "parents",
    "parent",
]);
const LINK: Fields = Only(&["mode", "subnet", "ip_address", "force", "default_gateway"]);
const SUBNET: Fields = Only(&[
    "cidr",
    "name",
    "description",
    "vlan",
    "fabric",
    "vid",
    "gateway_ip",
    "rdns_mode",
    "allow_dns",
    "allow_proxy",
    "dns_servers",
    "active_discovery",
    "managed",
    "disabled_boot_architectures",
]);
const VLAN: Fields =
    Only(&["name", "description", "vid", "mtu", "space", "dhcp_on", "primary_rack", "secondary_rack", "relay_vlan"]);
const EVENTS: Fields = Only(&[
    "hostname",
    "mac_address",
    "id",
    "zone",
    "agent_name",
    "level",
    "limit",
    "before",
    "after",
    "owner",
    "domain",
]);
const NAMED: Fields = Only(&["name", "description"]);

#[rustfmt::skip]
endpoints! {
    VersionRead             Get    "version/"                              None NONE,
    UserWhoami              Get    "users/"                                (Some("whoami")) NONE,
    TokenCreate             Post   "account/"                              (Some("create_authorisation_token")) (Only(&["name"])),
    TokenDelete             Post   "account/"                              (Some("delete_authorisation_token")) (Only(&["token_key"])),
    TokenList               Get    "account/"                              (Some("list_authorisation_tokens")) NONE,
    MachinesRead            Get    "machines/"                             None FILTERS,
    MachinesCreate          Post   "machines/"                             None CREATE,
    MachinesAccept          Post   "machines/"                             (Some("accept")) (Only(&["machines"])),
    MachinesAcceptAll       Post   "machines/"                             (Some("accept_all")) NONE,
    MachinesAllocate        Post   "machines/"                             (Some("allocate")) ALLOCATE,
    MachinesRelease         Post   "machines/"                             (Some("release")) (Only(&["machines", "comment"])),
    MachinesListAllocated   Get    "machines/"                             (Some("list_allocated")) FILTERS,
    MachinesPowerParameters Get    "machines/"                             (Some("power_parameters")) (Only(&["id"])),
    MachineRead             Get    "machines/{}/"                          None NONE,
    MachineUpdate           Put    "machines/{}/"                          None UPDATE,
    MachineDelete           Delete "machines/{}/"                          None NONE,
    MachineDeploy           Post   "machines/{}/"                          (Some("deploy")) DEPLOY,
    MachineRelease          Post   "machines/{}/"                          (Some("release")) RELEASE,
    MachineCommission       Post   "machines/{}/"                          (Some("commission")) COMMISSION,
    MachineAbort            Post   "machines/{}/"                          (Some("abort")) COMMENT,
    MachineTest             Post   "machines/{}/"                          (Some("test")) COMMISSION,
    MachineOverrideFailed   Post   "machines/{}/"                          (Some("override_failed_testing")) COMMENT,
    MachineMarkBroken       Post   "machines/{}/"                          (Some("mark_broken")) COMMENT,
    MachineMarkFixed        Post   "machines/{}/"                          (Some("mark_fixed")) COMMENT,
    MachineRescue           Post   "machines/{}/"                          (Some("rescue_mode")) NONE,
    MachineExitRescue       Post   "machines/{}/"                          (Some("exit_rescue_mode")) NONE,
    MachineLock             Post   "machines/{}/"                          (Some("lock")) COMMENT,
    MachineUnlock           Post   "machines/{}/"                          (Some("unlock")) COMMENT,
    MachinePowerOn          Post   "machines/{}/"                          (Some("power_on")) (Only(&["user_data", "comment"])),
    MachinePowerOff         Post   "machines/{}/"                          (Some("power_off")) (Only(&["stop_mode", "comment"])),
    MachinePowerQuery       Get    "machines/{}/"                          (Some("query_power_state")) NONE,
    MachinePowerParameters  Get    "machines/{}/"                          (Some("power_parameters")) NONE,
    MachineToken            Get    "machines/{}/"                          (Some("get_token")) NONE,
    MachineCurtinConfig     Get    "machines/{}/"                          (Some("get_curtin_config")) NONE,
    MachineOwnerData        Post   "machines/{}/"                          (Some("set_owner_data")) Any,
    MachineAnnotations      Post   "machines/{}/"                          (Some("set_workload_annotations")) Any,
    MachineStorageLayout    Post   "machines/{}/"                          (Some("set_storage_layout")) LAYOUT,
    NodeRead                Get    "nodes/{}/"                             None NONE,
    DisksRead               Get    "nodes/{}/blockdevices/"                None NONE,
    DiskRead                Get    "nodes/{}/blockdevices/{}/"             None NONE,
    DiskSetBoot             Post   "nodes/{}/blockdevices/{}/"             (Some("set_boot_disk")) NONE,
    InterfacesRead          Get    "nodes/{}/interfaces/"                  None NONE,
    InterfaceRead           Get    "nodes/{}/interfaces/{}/"               None NONE,
    InterfaceUpdate         Put    "nodes/{}/interfaces/{}/"               None INTERFACE,
    InterfaceLink           Post   "nodes/{}/interfaces/{}/"               (Some("link_subnet")) LINK,
    InterfaceUnlink         Post   "nodes/{}/interfaces/{}/"               (Some("unlink_subnet")) (Only(&["id"])),
    InterfaceDisconnect     Post   "nodes/{}/interfaces/{}/"               (Some("disconnect")) NONE,
    ResultsRead             Get    "nodes/{}/results/"                     None (Only(&["type", "hardware_type", "include_output", "filters"])),
    SubnetsRead             Get    "subnets/"                              None NONE,
    SubnetsCreate           Post   "subnets/"                              None SUBNET,
    SubnetRead              Get    "subnets/{}/"                           None NONE,
    SubnetUpdate            Put    "subnets/{}/"                           None SUBNET,
    SubnetDelete            Delete "subnets/{}/"                           None (Only(&["force"])),
    FabricsRead             Get    "fabrics/"                              None NONE,
    FabricsCreate           Post   "fabrics/"                              None (Only(&["name", "description", "class_type"])),
    FabricRead              Get    "fabrics/{}/"                           None NONE,
    VlansRead               Get    "fabrics/{}/vlans/"                     None NONE,
    VlansCreate             Post   "fabrics/{}/vlans/"                     None VLAN,
    VlanRead                Get    "fabrics/{}/vlans/{}/"                  None NONE,
    VlanUpdate              Put    "fabrics/{}/vlans/{}/"                  None VLAN,
    EventsQuery             Get    "events/"                               (Some("query")) EVENTS,
    TagsRead                Get    "tags/"                                 None NONE,
    TagsCreate              Post   "tags/"                                 None (Only(&["name", "comment", "definition", "kernel_opts"])),
    TagRead                 Get    "tags/{}/"                              None NONE,
    TagDelete               Delete "tags/{}/"                              None NONE,
    TagMachines             Get    "tags/{}/"                              (Some("machines")) NONE,
    TagUpdateNodes          Post   "tags/{}/"                              (Some("update_nodes")) (Only(&["add", "remove", "definition", "rack_controller"])),
    PoolsRead               Get    "resourcepools/"                        None NONE,
    PoolsCreate             Post   "resourcepools/"                        None NAMED,
    PoolRead                Get    "resourcepool/{}/"                      None NONE,
    PoolUpdate              Put    "resourcepool/{}/"                      None NAMED,
    PoolDelete              Delete "resourcepool/{}/"                      None NONE,
    ZonesRead               Get    "zones/"                                None NONE,
    ZonesCreate             Post   "zones/"                                None NAMED,
    ZoneRead                Get    "zones/{}/"                             None NONE,
    ZoneDelete              Delete "zones/{}/"                             None NONE,
    DomainsRead             Get    "domains/"                              None NONE,
    ConfigGet               Get    "maas/"                                 (Some("get_config")) (Only(&["name"])),
    ConfigSet               Post   "maas/"                                 (Some("set_config")) (Only(&["name", "value"])),
    RackControllersRead     Get    "rackcontrollers/"                      None FILTERS,
    BootResourcesRead       Get    "boot-resources/"                       None (Only(&["type"])),
    Preseed                 Get    "metadata/latest/by-id/{}/"             (Some("get_preseed")) NONE,
    Signal                  Post   "metadata/2012-03-01/"                  (Some("signal")) Any,
    NetbootOff              Post   "metadata/2012-03-01/"                  (Some("netboot_off")) NONE,
    UserData                Get    "metadata/2012-03-01/user-data"         None NONE,
    StatusMessage           Post   "metadata/status/{}"                    None Any,
}

/// Where a call leads.
pub enum Lookup {
    /// To this row, with the segments that stood for `{}`.
    Found(&'static Route, Vec<String>),
    /// The path exists, but not with this method and operation.
    NoSuchOperation,
    /// There is no such path.
    NoSuchPath,
}

/// Finds the row of a call. `path` is below the API root.
pub fn look_up(request: &Request, path: &str) -> Lookup {
    let mut path_exists = false;
    for route in ROUTES {
        let Some(segments) = capture(route.path, path) else { continue };
        path_exists = true;
        if route.method == request.method && route.op == request.op() {
            return Lookup::Found(route, segments);
        }
    }
    if path_exists { Lookup::NoSuchOperation } else { Lookup::NoSuchPath }
}

/// The path below `/MAAS/api/2.0/`; the machine side lives at `/MAAS/metadata/`.
pub fn below_root(path: &str) -> Option<&str> {
    let path = path.trim_start_matches('/').strip_prefix("MAAS/")?;
    if path.starts_with("metadata/") { Some(path) } else { path.strip_prefix("api/2.0/") }
}

/// The segments of `path` that stand for `{}` in `pattern`, or `None` when they do not match.
fn capture(pattern: &str, path: &str) -> Option<Vec<String>> {
    let mut captured = Vec::new();
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(captured),
            (Some("{}"), Some(segment)) if !segment.is_empty() => {
                captured.push(super::wire::percent_decode(segment));
            }
            (Some(want), Some(segment)) if want == segment => {}
            (Some(_) | None, Some(_)) | (Some(_), None) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_rows_answer_the_same_call() {
        let rows: BTreeSet<_> = ROUTES.iter().map(|row| (row.method, row.path, row.op)).collect();
        assert_eq!(rows.len(), ROUTES.len());
    }

    #[test]
    fn segments_are_captured_and_the_trailing_slash_counts() {
        assert_eq!(capture("nodes/{}/interfaces/{}/", "nodes/abc/interfaces/5/"), Some(vec!["abc".into(), "5".into()]));
        assert_eq!(capture("machines/{}/", "machines/abc"), None);
        assert_eq!(capture("machines/{}/", "machines//"), None);
        assert_eq!(below_root("/MAAS/api/2.0/version/"), Some("version/"));
        assert_eq!(below_root("/MAAS/metadata/status/abc"), Some("metadata/status/abc"));
        assert_eq!(below_root("/api/2.0/version/"), None);
    }
}
