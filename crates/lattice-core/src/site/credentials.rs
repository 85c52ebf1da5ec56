//! Credentials of a site: where each is kept, when it was set, and whether its provider took it. spec: S5 3.2, 3.4, 3.5

use serde::{Deserialize, Serialize};

use super::SiteProvider;
use crate::ids::{Generation, SiteId};
use crate::time::Timestamp;

/// Which secret of a site.
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
pub enum CredentialName {
    /// MAAS: `consumer_key:token_key:token_secret`.
    ApiToken,
    /// MAAS: the default BMC login.
    Power,
    /// MAAS: the password of the deploy user.
    DeployPassword,
    /// LXD: the client certificate.
    ClientCertificate,
    /// LXD: its key.
    ClientKey,
    /// LXD: the server's certificate.
    ServerCertificate,
    /// OpenCHAMI: the bearer token of its services.
    BearerToken,
}

impl CredentialName {
    /// Whether the provider itself is asked with it when a site is tried. A BMC login and a deploy password prove
    /// themselves only at a machine.
    pub const fn is_tried(self) -> bool {
        match self {
            Self::ApiToken
            | Self::ClientCertificate
            | Self::ClientKey
            | Self::ServerCertificate
            | Self::BearerToken => true,
            Self::Power | Self::DeployPassword => false,
        }
    }
}

/// The secrets that a provider needs, each with its path in the secret store. spec: S5 3.2
pub fn credential_paths(provider: &SiteProvider) -> Vec<(CredentialName, &str)> {
    match provider {
        SiteProvider::Manual => Vec::new(),
        SiteProvider::Maas(maas) => vec![
            (CredentialName::ApiToken, maas.api_token_path.as_str()),
            (CredentialName::Power, maas.default_power_creds_path.as_str()),
            (CredentialName::DeployPassword, maas.deploy_password_path.as_str()),
        ],
        SiteProvider::Lxd(lxd) => vec![
            (CredentialName::ClientCertificate, lxd.client_cert_path.as_str()),
            (CredentialName::ClientKey, lxd.client_key_path.as_str()),
            (CredentialName::ServerCertificate, lxd.server_cert_path.as_str()),
        ],
        SiteProvider::Openchami(site) if site.needs_token => {
            vec![(CredentialName::BearerToken, site.token_path.as_str())]
        }
        SiteProvider::Openchami(_) => Vec::new(),
    }
}

/// What is known of one credential. Its value is in the secret store alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SiteCredential {
    /// Whose.
    pub site: SiteId,
    /// Which.
    pub name: CredentialName,
    /// Where it is kept: `kv/maas-sites/0190…/api-token`.
    pub path: String,
    /// When it was set through Lattice; none: it was put into the secret store by other means.
    pub set_at: Option<Timestamp>,
    /// By whom.
    pub set_by: Option<String>,
    /// When the provider accepted it last; none: it was never tried.
    pub validated_at: Option<Timestamp>,
    /// What was wrong with it when it was looked at last: the provider's refusal, or that it is not there.
    pub problem: Option<String>,
    /// Version of the row.
    pub generation: Generation,
}

/// Why a row of a credential changes.
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
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CredentialCause {
    /// It was set for the first time, or rotated.
    Set,
    /// The provider accepted it.
    Validated,
    /// The provider refused it, or it is gone from the secret store.
    Refused,
}

/// Who set a credential, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetBy {
    /// Who.
    pub who: String,
    /// When.
    pub at: Timestamp,
}

impl SiteCredential {
    /// The row of a credential of which nothing is known.
    pub fn unknown(site: SiteId, name: CredentialName, path: &str) -> Self {
        Self {
            site,
            name,
            path: path.to_owned(),
            set_at: None,
            set_by: None,
            validated_at: None,
            problem: None,
            generation: Generation(0),
        }
    }

    /// After it was set; the provider has just taken those that it is tried with.
    #[must_use]
    pub fn set(self, by: SetBy) -> Self {
        let validated_at = if self.name.is_tried() { Some(by.at) } else { None };
        let generation = self.generation.next();
        Self { set_at: Some(by.at), set_by: Some(by.who), validated_at, problem: None, generation, ..self }
    }

    /// After the site was tried with it and said yes; those that are not tried were found where they are kept.
    #[must_use]
    pub fn validated(self, at: Timestamp) -> Self {
        let validated_at = if self.name.is_tried() { Some(at) } else { self.validated_at };
        Self { validated_at, problem: None, generation: self.generation.next(), ..self }
    }

    /// After it was refused, or found to be gone.
    #[must_use]
    pub fn refused(self, problem: String) -> Self {
        Self { problem: Some(problem), generation: self.generation.next(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_clears_the_refusal_and_only_what_was_tried_counts_as_accepted() {
        let at = Timestamp::from_millis(7);
        let by = SetBy { who: "ada".to_owned(), at };
        let site = SiteId::new(uuid::Uuid::nil());
        for (name, tried) in [(CredentialName::ApiToken, true), (CredentialName::Power, false)] {
            let row = SiteCredential::unknown(site, name, "kv/x").refused("401".to_owned());
            assert_eq!((row.generation, row.problem.as_deref()), (Generation::FIRST, Some("401")));
            let row = row.set(by.clone());
            assert_eq!((row.set_at, row.problem.clone(), row.generation), (Some(at), None, Generation(2)));
            assert_eq!(row.validated_at.is_some(), tried, "{name}");
        }
    }
}
