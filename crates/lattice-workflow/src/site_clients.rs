//! The real clients of all sites: made from the secret store, shared, made anew when a credential changed.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::bmc::Bmc;
use lattice_core::ids::{IdSource, SiteId};
use lattice_core::secret::{Secret, token_hash};
use lattice_core::site::{LxdSite, MaasSite, Site, SiteProvider};
use lattice_core::time::Clock;
use lattice_providers::error::ProviderError;
use lattice_providers::machine::bmc::{BmcClients, BmcControl, Caller};
use lattice_providers::machine::lxd::{LxdClient, LxdCredentials, LxdSettings};
use lattice_providers::machine::maas::follow::FollowLimits;
use lattice_providers::machine::maas::{
    ClientSettings, HttpTransport, MaasClient, MaasObserver, MaasTransport, RetryPolicy, Roots,
};
use lattice_providers::machine::openchami::{OchamiClient, OchamiSettings};
use lattice_providers::provider::CommandOutput;
use lattice_providers::secret::{SecretStore, read_field};
use lattice_providers::ssh::{ExecLimits, HostKey, SshCredential, SshSession, SshTarget};
use tokio::sync::Mutex;

use crate::providers::{InstanceHost, Providers, Shell, ShellTarget};

/// Longest wait for an SSH login: a host that boots answers late.
const LOGIN: Duration = Duration::from_secs(15);
/// Where the region of a development site is reached without a network.
pub type TransportFactory = dyn Fn(&MaasSite) -> Result<Arc<dyn MaasTransport>, ProviderError> + Send + Sync;

/// Clients of all sites.
pub struct SiteClients {
    secrets: Arc<dyn SecretStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    transports: Box<TransportFactory>,
    regions: Mutex<HashMap<SiteId, Made<MaasObserver>>>,
    hosts: Mutex<HashMap<SiteId, Made<LxdClient>>>,
    ochamis: Mutex<HashMap<SiteId, Made<OchamiClient>>>,
    bmcs: Arc<BmcClients>,
}

/// A client and the fingerprint of what it was made from.
struct Made<T> {
    from: String,
    client: Arc<T>,
}

impl SiteClients {
    /// Clients over HTTP.
    pub fn new(secrets: Arc<dyn SecretStore>, clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>) -> Self {
        Self::with_transports(secrets, clock, ids, |site| {
            Ok(Arc::new(HttpTransport::new(&site.api_base_url, &Roots::System)?))
        })
    }

    /// Clients whose MAAS regions are reached as `transports` says: for a simulated region in the same process.
    pub fn with_transports(
        secrets: Arc<dyn SecretStore>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        transports: impl Fn(&MaasSite) -> Result<Arc<dyn MaasTransport>, ProviderError> + Send + Sync + 'static,
    ) -> Self {
        let bmcs = Arc::new(BmcClients::new(Arc::clone(&secrets), Arc::clone(&clock)));
        Self {
            secrets,
            clock,
            ids,
            transports: Box::new(transports),
            regions: Mutex::default(),
            hosts: Mutex::default(),
            ochamis: Mutex::default(),
            bmcs,
        }
    }

    /// The BMCs of all nodes; whoever reads them waits in the same queues as the jobs.
    pub const fn bmcs(&self) -> &Arc<BmcClients> {
        &self.bmcs
    }

    async fn secret(&self, call: &str, path: &str, field: &'static str) -> Result<Secret<String>, ProviderError> {
        let path = path.parse().map_err(|bad| ProviderError::unusable(call, bad))?;
        read_field(&*self.secrets, &path, field).await.map_err(|error| ProviderError::no_credential(call, &error))
    }

    fn region(&self, site: &MaasSite, key: &Secret<String>) -> Result<MaasObserver, ProviderError> {
        let transport = (self.transports)(site)?;
        let settings = ClientSettings {
            // Nonces of two clients with the same key must never meet.
            nonce_prefix: self.ids.uuid(self.clock.now()).simple().to_string(),
            retry: RetryPolicy::default(),
        };
        let client = MaasClient::new(key, settings, transport, Arc::clone(&self.clock))?;
        let poll = Duration::from_millis(site.policy.poll_interval_ms);
        // A machine that no event names, such as one that reports its hardware, is read every sixth poll.
        let limits = FollowLimits { watched_age: poll * 6, ..FollowLimits::default() };
        Ok(MaasObserver::new(Arc::new(client), limits))
    }

    async fn credentials(&self, site: &LxdSite) -> Result<LxdCredentials, ProviderError> {
        let call = "lxd credentials";
        Ok(LxdCredentials {
            client_cert: self.secret(call, &site.client_cert_path, "pem").await?.expose().clone(),
            client_key: self.secret(call, &site.client_key_path, "pem").await?,
            server_cert: self.secret(call, &site.server_cert_path, "pem").await?.expose().clone(),
        })
    }
}

#[async_trait]
impl Providers for SiteClients {
    async fn instances(&self, site: &Site) -> Result<Arc<dyn InstanceHost>, ProviderError> {
        let SiteProvider::Lxd(settings) = &site.provider else {
            return Err(ProviderError::unusable("lxd connect", format!("site {} is no LXD site", site.name)));
        };
        let credentials = self.credentials(settings).await?;
        let from = token_hash(&format!(
            "{}\n{}\n{}\n{}\n{}",
            settings.api_url,
            settings.project,
            credentials.client_cert,
            credentials.client_key.expose(),
            credentials.server_cert
        ));
        let mut hosts = self.hosts.lock().await;
        if let Some(made) = hosts.get(&site.id).filter(|made| made.from == from) {
            return Ok(made.client.clone());
        }
        let lxd = LxdSettings { api_url: settings.api_url.clone(), project: settings.project.clone() };
        let client = Arc::new(LxdClient::new(lxd, &credentials, Arc::clone(&self.clock))?);
        hosts.insert(site.id, Made { from, client: Arc::clone(&client) });
        Ok(client)
    }

    async fn maas(&self, site: &Site) -> Result<Arc<MaasObserver>, ProviderError> {
        let SiteProvider::Maas(settings) = &site.provider else {
            return Err(ProviderError::unusable("maas connect", format!("site {} is no MAAS site", site.name)));
        };
        let key = self.secret("maas credentials", &settings.api_token_path, "token").await?;
        let poll = settings.policy.poll_interval_ms;
        let from = token_hash(&format!("{}\n{poll}\n{}", settings.api_base_url, key.expose()));
        let mut regions = self.regions.lock().await;
        if let Some(made) = regions.get(&site.id).filter(|made| made.from == from) {
            return Ok(Arc::clone(&made.client));
        }
        let client = Arc::new(self.region(settings, &key)?);
        regions.insert(site.id, Made { from, client: Arc::clone(&client) });
        Ok(client)
    }

    async fn openchami(&self, site: &Site) -> Result<Arc<OchamiClient>, ProviderError> {
        let SiteProvider::Openchami(settings) = &site.provider else {
            let why = format!("site {} is no OpenCHAMI site", site.name);
            return Err(ProviderError::unusable("openchami connect", why));
        };
        let token = match settings.needs_token {
            true => Some(self.secret("openchami credentials", &settings.token_path, "token").await?),
            false => None,
        };
        let (pcs, authority) = (settings.pcs_url.clone(), settings.authority_pem.clone());
        let parts = [&settings.smd_url, &settings.bss_url, pcs.as_ref().unwrap_or(&String::new())]
            .map(String::as_str)
            .join("\n");
        let secret = token.as_ref().map_or("", |token| token.expose().as_str());
        let from = token_hash(&format!("{parts}\n{}\n{secret}", authority.as_deref().unwrap_or_default()));
        let mut ochamis = self.ochamis.lock().await;
        if let Some(made) = ochamis.get(&site.id).filter(|made| made.from == from) {
            return Ok(Arc::clone(&made.client));
        }
        let roots = authority.map_or(Roots::System, |pem| Roots::Pem(pem.into_bytes()));
        let services = OchamiSettings { smd: settings.smd_url.clone(), bss: settings.bss_url.clone(), pcs, roots };
        let client = Arc::new(OchamiClient::new(services, token, Arc::clone(&self.clock))?);
        ochamis.insert(site.id, Made { from, client: Arc::clone(&client) });
        Ok(client)
    }

    async fn bmc(&self, site: &Site, bmc: &Bmc, caller: Caller) -> Result<Arc<dyn BmcControl>, ProviderError> {
        self.bmcs.control(bmc, &site.bmc, caller).await
    }

    async fn shell(&self, target: &ShellTarget) -> Result<Box<dyn Shell>, ProviderError> {
        let address: IpAddr = target
            .address
            .parse()
            .map_err(|_| ProviderError::unusable("ssh connect", format!("`{}` is not an address", target.address)))?;
        let ssh = SshTarget {
            address: SocketAddr::new(address, target.port),
            host_key: HostKey::from_openssh(&target.host_key)?,
            user: target.user.clone(),
        };
        let credential = SshCredential::Password(target.password.clone());
        Ok(Box::new(SshShell { session: SshSession::connect(&ssh, &credential, LOGIN).await? }))
    }
}

struct SshShell {
    session: SshSession,
}

#[async_trait]
impl Shell for SshShell {
    async fn run(
        &self,
        command: &[&str],
        input: &Secret<String>,
        limit: Duration,
    ) -> Result<CommandOutput, ProviderError> {
        let limits = ExecLimits { within: limit, ..ExecLimits::default() };
        self.session.exec(command, &Secret::new(input.expose().clone().into_bytes()), limits).await
    }
}
