//! The systems that stages act on, behind one door: clients are made per site and shared.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::bmc::Bmc;
use lattice_core::job::StageError;
use lattice_core::secret::Secret;
use lattice_core::site::Site;
use lattice_core::time::Timestamp;
use lattice_providers::error::{ErrorKind, ProviderError, Remedy};
use lattice_providers::machine::bmc::{BmcControl, Caller};
use lattice_providers::machine::maas::MaasObserver;
use lattice_providers::machine::openchami::OchamiClient;
use lattice_providers::observer::MachineObservation;
use lattice_providers::provider::{CommandOutput, GuestAccess, MachineProvider};

use crate::stage::Seen;

/// A server of instances: it creates them and reaches into them.
pub trait InstanceHost: MachineProvider + GuestAccess {}

impl<T: MachineProvider + GuestAccess> InstanceHost for T {}

/// Clients of the systems at a site. Credentials are read from the secret store when a client is made, and a client
/// is made anew when they changed, so that a rotated credential works at once. spec: S5 3.2, 3.5
#[async_trait]
pub trait Providers: Send + Sync {
    /// The instances of an LXD site, or of whatever stands in for one.
    ///
    /// # Errors
    /// The site's settings or credentials cannot be used.
    async fn instances(&self, site: &Site) -> Result<Arc<dyn InstanceHost>, ProviderError>;

    /// The region of a MAAS site: the observer that all jobs share, and the client within.
    ///
    /// # Errors
    /// The site's settings or credentials cannot be used.
    async fn maas(&self, site: &Site) -> Result<Arc<MaasObserver>, ProviderError>;

    /// The services of an OpenCHAMI site.
    ///
    /// # Errors
    /// The site's settings or credentials cannot be used, or there is no way to OpenCHAMI here.
    async fn openchami(&self, site: &Site) -> Result<Arc<OchamiClient>, ProviderError> {
        let why = format!("there is no way to the OpenCHAMI site {} here", site.name);
        Err(ProviderError::unusable("openchami connect", why))
    }

    /// A node's BMC, for one caller.
    ///
    /// # Errors
    /// The site does not allow its address, its credential cannot be had, or there is no way to BMCs here.
    async fn bmc(&self, site: &Site, bmc: &Bmc, caller: Caller) -> Result<Arc<dyn BmcControl>, ProviderError> {
        let _ = (site, bmc, caller);
        Err(ProviderError::unusable("bmc connect", "there is no way to BMCs here"))
    }

    /// A shell on a deployed host, by its pinned host key.
    ///
    /// # Errors
    /// The host cannot be reached, shows another key, or refuses the login.
    async fn shell(&self, target: &ShellTarget) -> Result<Box<dyn Shell>, ProviderError>;
}

/// A host to be reached by SSH.
pub struct ShellTarget {
    /// Address.
    pub address: String,
    /// Port.
    pub port: u16,
    /// User.
    pub user: String,
    /// Its password.
    pub password: Secret<String>,
    /// The only host key that is accepted, in OpenSSH's format.
    pub host_key: String,
}

/// An open connection to a host.
#[async_trait]
pub trait Shell: Send + Sync {
    /// Runs a program with arguments, with `input` on its standard input, and waits for its end for at most `limit`.
    ///
    /// # Errors
    /// The connection broke; it did not end in time.
    async fn run(
        &self,
        command: &[&str],
        input: &Secret<String>,
        limit: Duration,
    ) -> Result<CommandOutput, ProviderError>;
}

/// A provider's failure as a stage's: its own class, a code, and when to come back if it said so.
pub fn failed(now: Timestamp) -> impl Fn(ProviderError) -> StageError {
    move |failure| StageError {
        class: failure.class(),
        error_code: error_code(&failure.kind).to_owned(),
        message: failure.to_string(),
        retry_after: match failure.remedy() {
            Remedy::RepeatAfter(after) => Some(now + after),
            Remedy::Repeat | Remedy::ReadFirst | Remedy::Stop => None,
        },
        choices: Vec::new(),
        recovery: None,
    }
}

const fn error_code(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unreachable { .. } => "provider_unreachable",
        ErrorKind::Timeout { .. } => "provider_timeout",
        ErrorKind::Ambiguous { .. } => "answer_lost",
        ErrorKind::Unauthorised { .. } => "credential_refused",
        ErrorKind::Forbidden { .. } => "not_allowed",
        ErrorKind::NotFound { .. } => "not_found",
        ErrorKind::Refused { .. } => "provider_refused",
        ErrorKind::RetryLater { .. } => "provider_busy",
        ErrorKind::PowerFailed { .. } => "power_control_failed",
        ErrorKind::ServerFailed { .. } => "provider_failed",
        ErrorKind::Malformed { .. } => "answer_malformed",
        ErrorKind::BadCertificate { .. } => "peer_not_pinned",
        ErrorKind::SeveralMatch { .. } => "several_match",
        ErrorKind::NoCredential { trouble, .. } => trouble.error_code(),
        ErrorKind::NotOffered { .. } => "not_offered",
        ErrorKind::LockedOut { .. } => "credential_locked_out",
        ErrorKind::Unusable { .. } => "request_unusable",
    }
}

/// An observation as what the provider was seen to say.
pub fn seen(found: &MachineObservation) -> Seen {
    Seen {
        provider_ref: found.provider_ref.clone(),
        status: found.status.clone(),
        power: found.power,
        addresses: found.addresses.iter().map(ToString::to_string).collect(),
    }
}
