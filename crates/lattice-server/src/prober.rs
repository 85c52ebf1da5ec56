//! Tries sites: with the stored secrets, and with new ones before they are written. spec: S5 3.4

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use lattice_api::site::CallLine;
use lattice_core::explain::Explain;
use lattice_core::ids::IdSource;
use lattice_core::site::maas::version_note;
use lattice_core::site::{MaasSite, OpenchamiSite, Site, SiteProvider};
use lattice_core::time::Clock;
use lattice_providers::error::ProviderError;
use lattice_providers::machine::maas::client::CallCount;
use lattice_providers::machine::maas::region::{RackController, pxe_note};
use lattice_providers::secret::{SecretError, SecretObject, SecretPath, SecretStore};
use lattice_workflow::preflight;
use lattice_workflow::providers::Providers;
use lattice_workflow::site_clients::SiteClients;
use tokio::sync::Mutex;

use crate::http::{NewSecrets, ProbeFailed, Probed, SiteProber};

/// Asks a site's provider who it is, with clients of its own.
pub struct Prober {
    secrets: Arc<dyn SecretStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    /// The clients that jobs use: what they ask is counted.
    running: Arc<dyn Providers>,
}

impl Prober {
    /// Over the installation's secret store.
    pub fn new(
        secrets: Arc<dyn SecretStore>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        running: Arc<dyn Providers>,
    ) -> Self {
        Self { secrets, clock, ids, running }
    }

    /// Version, then the key, then the rack controllers: reachable and allowed are told apart.
    async fn maas(&self, site: &Site, maas: &MaasSite, clients: &SiteClients) -> Result<Probed, ProviderError> {
        let region = clients.maas(site).await?;
        let client = region.client();
        let version = client.version().await?;
        let user = client.whoami().await?;
        let racks = client.rack_controllers().await?;
        let role = if user.is_superuser { "" } else { ", who is no administrator: onboarding needs one" };
        let mut details = vec![format!("key of {}{role}", user.username), racks_in_words(&racks)];
        details.extend(pxe_note(&racks, &maas.pxe_iface, maas.pxe_vlan_vid));
        details.extend(version_note(&version.version));
        Ok(Probed { version: Some(version.version), details })
    }

    async fn openchami(
        &self,
        site: &Site,
        settings: &OpenchamiSite,
        clients: &SiteClients,
    ) -> Result<Probed, ProviderError> {
        let client = clients.openchami(site).await?;
        let mut details = vec![preflight::fit(&client, settings).await?];
        details.push(format!("{} nodes known to State Manager", client.nodes().await?.len()));
        if settings.pcs_url.is_none() {
            details.push("no Power Control: nodes are switched through BMCs of their own".to_owned());
        }
        Ok(Probed { version: None, details })
    }

    async fn lxd(&self, site: &Site, clients: &SiteClients) -> Result<Probed, ProviderError> {
        let instances = clients.instances(site).await?.observe_all().await?;
        Ok(Probed { version: None, details: vec![format!("{} instances", instances.len())] })
    }
}

#[async_trait]
impl SiteProber for Prober {
    async fn probe(&self, site: &Site, fresh: &NewSecrets) -> Result<Probed, ProbeFailed> {
        let secrets = Arc::new(Overlay { over: Mutex::new(copy(fresh)), base: Arc::clone(&self.secrets) });
        let clients = SiteClients::new(secrets, Arc::clone(&self.clock), Arc::clone(&self.ids));
        let probed = match &site.provider {
            SiteProvider::Manual => Ok(Probed { version: None, details: vec!["needs no provider".to_owned()] }),
            SiteProvider::Maas(maas) => self.maas(site, maas, &clients).await,
            SiteProvider::Lxd(_) => self.lxd(site, &clients).await,
            SiteProvider::Openchami(settings) => self.openchami(site, settings, &clients).await,
        };
        probed.map_err(|error| ProbeFailed { why: error.to_string(), code: error.code() })
    }

    async fn calls(&self, site: &Site) -> Vec<CallLine> {
        match &site.provider {
            // A site without usable credentials was asked nothing.
            SiteProvider::Maas(_) => match self.running.maas(site).await {
                Ok(region) => lines(region.client().counts()),
                Err(_) => Vec::new(),
            },
            SiteProvider::Manual | SiteProvider::Lxd(_) | SiteProvider::Openchami(_) => Vec::new(),
        }
    }
}

/// Calls in the order of their names.
fn lines(counts: BTreeMap<&'static str, CallCount>) -> Vec<CallLine> {
    let line = |(call, count): (&str, CallCount)| CallLine {
        call: call.to_owned(),
        calls: count.calls,
        retries: count.retries,
        failures: count.failures,
    };
    counts.into_iter().map(line).collect()
}

fn racks_in_words(racks: &[RackController]) -> String {
    let names: Vec<&str> = racks.iter().map(|rack| rack.hostname.as_str()).collect();
    match names.as_slice() {
        [] => "no rack controller: nothing can boot".to_owned(),
        [one] => format!("1 rack controller: {one}"),
        several => format!("{} rack controllers: {}", several.len(), several.join(", ")),
    }
}

fn copy(secrets: &NewSecrets) -> NewSecrets {
    secrets.iter().map(|(path, object)| (path.clone(), copy_object(object))).collect()
}

fn copy_object(object: &SecretObject) -> SecretObject {
    object.iter().map(|(name, secret)| (name.clone(), secret.clone())).collect()
}

/// New secrets over the stored ones; nothing reaches the store.
struct Overlay {
    over: Mutex<NewSecrets>,
    base: Arc<dyn SecretStore>,
}

#[async_trait]
impl SecretStore for Overlay {
    async fn read(&self, path: &SecretPath) -> Result<SecretObject, SecretError> {
        let over = self.over.lock().await;
        match over.iter().find(|(at, _)| at == path) {
            Some((_, object)) => Ok(copy_object(object)),
            None => self.base.read(path).await,
        }
    }

    async fn write(&self, path: &SecretPath, object: SecretObject) -> Result<(), SecretError> {
        let mut over = self.over.lock().await;
        over.retain(|(at, _)| at != path);
        over.push((path.clone(), object));
        Ok(())
    }

    async fn delete(&self, path: &SecretPath) -> Result<(), SecretError> {
        self.over.lock().await.retain(|(at, _)| at != path);
        Ok(())
    }
}
