//! Where a node's BMC is and how it is talked to. Its credential is in the secret store; here is only the path.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::BmcPolicy;

/// Protocol of a BMC.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BmcProtocol {
    /// HTTP with JSON, by DMTF.
    Redfish,
    /// RMCP+ over UDP.
    Ipmi,
}

impl BmcProtocol {
    /// Its usual port.
    pub const fn port(self) -> u16 {
        match self {
            Self::Redfish => 443,
            Self::Ipmi => 623,
        }
    }
}

/// Cipher suite of an IPMI session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum CipherSuite {
    /// SHA-1: what older BMCs have.
    Three,
    /// SHA-256.
    #[default]
    Seventeen,
}

impl From<CipherSuite> for u8 {
    fn from(suite: CipherSuite) -> Self {
        match suite {
            CipherSuite::Three => 3,
            CipherSuite::Seventeen => 17,
        }
    }
}

/// A cipher suite that is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cipher suite {0} is not used: it must be 17, or 3 for a BMC that has no better")]
pub struct UnusedCipherSuite(pub u8);

impl TryFrom<u8> for CipherSuite {
    type Error = UnusedCipherSuite;
    fn try_from(number: u8) -> Result<Self, UnusedCipherSuite> {
        match number {
            3 => Ok(Self::Three),
            17 => Ok(Self::Seventeen),
            _ => Err(UnusedCipherSuite(number)),
        }
    }
}

/// What proves that a Redfish service is the one that is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "trust", rename_all = "snake_case", deny_unknown_fields)]
pub enum BmcTls {
    /// Exactly this certificate, whatever its names and dates.
    Pinned {
        /// SHA-256 of its DER form, 64 hexadecimal digits.
        sha256: String,
    },
    /// Any certificate of the site's authority that names the address.
    SiteAuthority,
    /// No TLS at all: on loopback only, for emulators.
    Plain,
}

/// How a BMC is talked to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "protocol", rename_all = "snake_case", deny_unknown_fields)]
pub enum BmcWay {
    /// By Redfish.
    Redfish {
        /// What proves it.
        tls: BmcTls,
        /// Id of the system, where one service has several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        system: Option<String>,
    },
    /// By IPMI.
    Ipmi {
        /// Cipher suite.
        #[serde(default)]
        #[schema(value_type = u8)]
        cipher: CipherSuite,
    },
}

impl BmcWay {
    /// Its protocol.
    pub const fn protocol(&self) -> BmcProtocol {
        match self {
            Self::Redfish { .. } => BmcProtocol::Redfish,
            Self::Ipmi { .. } => BmcProtocol::Ipmi,
        }
    }
}

/// A node's BMC. An address, never a name: what was allowed is what is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BmcEndpoint {
    /// Its address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Its port, when it is not the protocol's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// How it is talked to.
    #[serde(flatten)]
    pub way: BmcWay,
    /// Where its user and password are kept in the secret store.
    pub credential_path: String,
}

/// Why an endpoint cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointProblem {
    /// The site does not allow the address.
    #[error(
        "`address` {0} is outside the networks in which this site allows BMCs: add its network to the site's `bmc.networks`"
    )]
    Address(IpAddr),
    /// Plain HTTP beyond loopback.
    #[error(
        "`tls` plain is for loopback addresses only, not for {0}: give the certificate's SHA-256 or use the site's authority"
    )]
    PlainBeyondLoopback(IpAddr),
    /// The site has no authority.
    #[error("`tls` names the site's authority, and the site's `bmc.authority_pem` is not set")]
    NoAuthority,
    /// A pin that is none.
    #[error("`sha256` must be 64 hexadecimal digits: the SHA-256 of the BMC's certificate")]
    BadPin,
    /// A port that is none.
    #[error("`port` must be 1 to 65535")]
    BadPort,
}

impl BmcEndpoint {
    /// The port it is called at.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or_else(|| self.way.protocol().port())
    }

    /// Whether the site lets it be called like this. spec: design 8 "SSRF guard"
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self, policy: &BmcPolicy) -> Result<(), EndpointProblem> {
        if !policy.allows(self.address) {
            return Err(EndpointProblem::Address(self.address));
        }
        if self.port == Some(0) {
            return Err(EndpointProblem::BadPort);
        }
        match &self.way {
            BmcWay::Redfish { tls: BmcTls::Plain, .. } if !self.address.to_canonical().is_loopback() => {
                Err(EndpointProblem::PlainBeyondLoopback(self.address))
            }
            BmcWay::Redfish { tls: BmcTls::SiteAuthority, .. } if policy.authority_pem.is_none() => {
                Err(EndpointProblem::NoAuthority)
            }
            BmcWay::Redfish { tls: BmcTls::Pinned { sha256 }, .. }
                if sha256.len() != 64 || !sha256.bytes().all(|b| b.is_ascii_hexdigit()) =>
            {
                Err(EndpointProblem::BadPin)
            }
            BmcWay::Redfish { .. } | BmcWay::Ipmi { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(address: &str, tls: BmcTls) -> BmcEndpoint {
        let way = BmcWay::Redfish { tls, system: None };
        BmcEndpoint { address: address.parse().unwrap(), port: None, way, credential_path: "kv/bmc/a".to_owned() }
    }

    #[test]
    fn what_a_site_does_not_allow_is_not_called() {
        let default = BmcPolicy::default();
        let loopback = BmcPolicy { networks: vec!["127.0.0.0/8".parse().unwrap()], ..BmcPolicy::default() };
        let pin = |sha256: String| BmcTls::Pinned { sha256 };
        let rows = [
            (endpoint("10.0.0.7", pin("ab".repeat(32))), &default, Ok(())),
            (endpoint("127.0.0.1", BmcTls::Plain), &loopback, Ok(())),
            (
                endpoint("127.0.0.1", BmcTls::Plain),
                &default,
                Err(EndpointProblem::Address("127.0.0.1".parse().unwrap())),
            ),
            (
                endpoint("10.0.0.7", BmcTls::Plain),
                &default,
                Err(EndpointProblem::PlainBeyondLoopback("10.0.0.7".parse().unwrap())),
            ),
            (endpoint("10.0.0.7", BmcTls::SiteAuthority), &default, Err(EndpointProblem::NoAuthority)),
            (endpoint("10.0.0.7", pin("xyz".to_owned())), &default, Err(EndpointProblem::BadPin)),
        ];
        for (endpoint, policy, want) in rows {
            assert_eq!(endpoint.check(policy), want, "{endpoint:?}");
        }
    }

    #[test]
    fn an_endpoint_reads_as_it_is_written() {
        let text = r#"{"address":"10.0.0.7","protocol":"ipmi","cipher":3,"credential_path":"kv/bmc/a"}"#;
        let endpoint: BmcEndpoint = serde_json::from_str(text).unwrap();
        assert_eq!((endpoint.port(), &endpoint.way), (623, &BmcWay::Ipmi { cipher: CipherSuite::Three }));
        assert_eq!(serde_json::to_string(&endpoint).unwrap(), text);
        assert!(serde_json::from_str::<CipherSuite>("0").unwrap_err().to_string().contains("must be 17"));
    }
}
