//! The power drivers of MAAS and their parameters. spec: MAAS contract section 5.

/// A power driver.
pub struct PowerType {
    /// The value of `power_type`.
    pub name: &'static str,
    /// Whether it can switch and query.
    pub queryable: bool,
    /// Its parameters.
    pub parameters: &'static [PowerParameter],
}

/// A parameter of a power driver.
pub struct PowerParameter {
    /// The part after `power_parameters_`.
    pub name: &'static str,
    /// Whether it must be given when it has no default.
    pub required: bool,
    /// Whether it is a secret.
    pub secret: bool,
    /// The value when none is given; empty for none.
    pub default: &'static str,
    /// The values it may have; empty for any.
    pub choices: &'static [&'static str],
}

/// The driver of this name.
pub fn find(name: &str) -> Option<&'static PowerType> {
    POWER_TYPES.iter().find(|known| known.name == name)
}

const fn power(name: &'static str, queryable: bool, parameters: &'static [PowerParameter]) -> PowerType {
    PowerType { name, queryable, parameters }
}

const fn optional(name: &'static str) -> PowerParameter {
    PowerParameter { name, required: false, secret: false, default: "", choices: &[] }
}

const fn required(name: &'static str) -> PowerParameter {
    PowerParameter { required: true, ..optional(name) }
}

const fn secret(name: &'static str) -> PowerParameter {
    PowerParameter { secret: true, ..optional(name) }
}

const fn required_secret(name: &'static str) -> PowerParameter {
    PowerParameter { required: true, ..secret(name) }
}

const fn defaulted(name: &'static str, default: &'static str) -> PowerParameter {
    PowerParameter { default, ..optional(name) }
}

const fn choice(name: &'static str, default: &'static str, choices: &'static [&'static str]) -> PowerParameter {
    PowerParameter { default, choices, ..optional(name) }
}

/// Every driver.
#[rustfmt::skip]
pub const POWER_TYPES: &[PowerType] = &[
    power("amt", true, &[defaulted("power_user", "admin"), secret("power_pass"), choice("port", "16992", &["16992", "16993"]), required("power_address")]),
    power("apc", true, &[required("power_address"), required("node_outlet"), defaulted("power_on_delay", "5"), choice("pdu_type", "RPDU", &["RPDU", "MASTERSWITCH"])]),
    power("dli", true, &[required("outlet_id"), required("power_address"), optional("power_user"), secret("power_pass")]),
    power("eaton", true, &[required("power_address"), required("node_outlet"), defaulted("power_on_delay", "5")]),
    power("hmc", true, &[required("power_address"), optional("power_user"), secret("power_pass"), required("server_name"), required("lpar")]),
    power("hmcz", true, &[required("power_address"), required("power_user"), required_secret("power_pass"), required("power_partition_name"), choice("power_verify_ssl", "y", &["n", "y"])]),
    power("ipmi", true, &[choice("power_driver", "LAN_2_0", &["LAN", "LAN_2_0"]), choice("power_boot_type", "auto", &["auto", "legacy", "efi"]), required("power_address"), optional("power_user"), secret("power_pass"), secret("k_g"), choice("cipher_suite_id", "3", &["17", "3", "", "8", "12"]), choice("privilege_level", "OPERATOR", &["USER", "OPERATOR", "ADMIN"]), defaulted("workaround_flags", "['opensesspriv']"), optional("mac_address"), choice("power_off_mode", "hard", &["soft", "hard"])]),
    power("manual", false, &[]),
    power("moonshot", true, &[required("power_address"), optional("power_user"), secret("power_pass"), required("power_hwaddress")]),
    power("mscm", true, &[required("power_address"), optional("power_user"), secret("power_pass"), required("node_id")]),
    power("msftocs", true, &[required("power_address"), optional("power_port"), optional("power_user"), secret("power_pass"), required("blade_id")]),
    power("nova", true, &[required("nova_id"), required("os_tenantname"), required("os_username"), required_secret("os_password"), required("os_authurl")]),
    power("openbmc", true, &[required("power_address"), required("power_user"), required_secret("power_pass")]),
    power("proxmox", true, &[required("power_address"), required("power_user"), secret("power_pass"), optional("power_token_name"), secret("power_token_secret"), required("power_vm_name"), choice("power_verify_ssl", "n", &["n", "y"])]),
    power("raritan", true, &[required("power_address"), required("node_outlet"), defaulted("power_on_delay", "5")]),
    power("recs_box", true, &[required("node_id"), required("power_address"), optional("power_port"), optional("power_user"), secret("power_pass")]),
    power("redfish", true, &[required("power_address"), required("power_user"), required_secret("power_pass"), optional("node_id")]),
    power("sm15k", true, &[required("system_id"), required("power_address"), optional("power_user"), secret("power_pass"), choice("power_control", "ipmi", &["ipmi", "restapi", "restapi2"])]),
    power("ucsm", true, &[required("uuid"), required("power_address"), optional("power_user"), secret("power_pass")]),
    power("vmware", true, &[optional("power_vm_name"), optional("power_uuid"), required("power_address"), required("power_user"), required_secret("power_pass"), optional("power_port"), optional("power_protocol")]),
    power("webhook", true, &[required("power_on_uri"), required("power_off_uri"), required("power_query_uri"), defaulted("power_on_regex", "status.*\\:.*running"), defaulted("power_off_regex", "status.*\\:.*stopped"), optional("power_user"), secret("power_pass"), secret("power_token"), choice("power_verify_ssl", "n", &["n", "y"])]),
    power("wedge", true, &[required("power_address"), optional("power_user"), secret("power_pass")]),
    power("lxd", true, &[required("power_address"), required("instance_name"), defaulted("project", "default"), secret("password"), optional("certificate"), secret("key")]),
    power("virsh", true, &[required("power_address"), secret("power_pass"), required("power_id")]),
];
