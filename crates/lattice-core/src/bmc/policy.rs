//! What a site says of its BMCs: which addresses may be called at all, and how often they are asked.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Rules for the BMCs of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BmcPolicy {
    /// Networks in which BMCs may be called; none: private networks, but never loopback or link-local addresses.
    #[schema(value_type = Vec<String>)]
    pub networks: Vec<IpNet>,
    /// Authority that signs the certificates of the site's BMCs, as PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority_pem: Option<String>,
    /// How often each BMC is asked for its health, in milliseconds; 0: never.
    pub health_interval_ms: u64,
    /// BMCs of the site that are asked at once.
    pub health_parallel: u32,
}

impl Default for BmcPolicy {
    /// A minute: S1 wants hardware failures seen at once, and a BMC needs some seconds for each look.
    fn default() -> Self {
        Self { networks: Vec::new(), authority_pem: None, health_interval_ms: 60_000, health_parallel: 8 }
    }
}

impl BmcPolicy {
    /// Whether a BMC at this address may be called.
    pub fn allows(&self, address: IpAddr) -> bool {
        if self.networks.is_empty() {
            is_private(address)
        } else {
            self.networks.iter().any(|net| net.contains(&address))
        }
    }

    /// How often each BMC is asked; none: never.
    pub const fn health_interval(&self) -> Option<Duration> {
        if self.health_interval_ms == 0 { None } else { Some(Duration::from_millis(self.health_interval_ms)) }
    }
}

fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_private(),
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_networks_are_called_unless_the_site_lists_others() {
        let allows = |policy: &BmcPolicy, text: &str| policy.allows(text.parse().unwrap());
        let default = BmcPolicy::default();
        for good in ["10.1.2.3", "172.16.0.9", "192.168.7.7", "fd00::7", "::ffff:10.0.0.1"] {
            assert!(allows(&default, good), "{good}");
        }
        for bad in ["127.0.0.1", "169.254.169.254", "8.8.8.8", "0.0.0.0", "::1", "fe80::1", "::ffff:127.0.0.1"] {
            assert!(!allows(&default, bad), "{bad}");
        }
        let listed = BmcPolicy { networks: vec!["127.0.0.0/8".parse().unwrap()], ..default };
        assert!(allows(&listed, "127.0.0.1") && !allows(&listed, "10.1.2.3"));
    }
}
