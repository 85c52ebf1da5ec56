//! Clients of all BMCs: made from the row and the secret store at the moment of use, each behind its BMC's gate.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use lattice_core::bmc::{Bmc, BmcEndpoint, BmcPolicy, BmcTls, BmcWay};
use lattice_core::time::Clock;

use super::{BmcControl, BmcGates, BmcLogin, BmcObserver, Caller, Gate, Gated, QueueView};
use crate::error::ProviderError;
use crate::machine::ipmi::{IpmiClient, IpmiSettings};
use crate::machine::redfish::{RedfishClient, RedfishSettings, RedfishTrust};
use crate::secret::{SecretStore, read_field};

/// Reads BMCs. This is all that controllers get.
#[async_trait]
pub trait BmcReaders: Send + Sync {
    /// A reader of this BMC, for one caller.
    ///
    /// # Errors
    /// The site does not allow its address, or its credential cannot be had.
    async fn reader(
        &self,
        bmc: &Bmc,
        policy: &BmcPolicy,
        caller: Caller,
    ) -> Result<Arc<dyn BmcObserver>, ProviderError>;

    /// Who uses it, who waits, and whether its credential is tried.
    fn queue(&self, bmc: &Bmc) -> QueueView;
}

/// Clients of all BMCs of this process.
pub struct BmcClients {
    secrets: Arc<dyn SecretStore>,
    clock: Arc<dyn Clock>,
    gates: BmcGates,
}

impl BmcClients {
    /// Clients whose credentials are read from `secrets`.
    pub fn new(secrets: Arc<dyn SecretStore>, clock: Arc<dyn Clock>) -> Self {
        Self { secrets, clock, gates: BmcGates::default() }
    }

    /// A client that may change what the BMC controls, for one caller. Only jobs may ask for it.
    ///
    /// # Errors
    /// The site does not allow its address, or its credential cannot be had.
    pub async fn control(
        &self,
        bmc: &Bmc,
        policy: &BmcPolicy,
        caller: Caller,
    ) -> Result<Arc<dyn BmcControl>, ProviderError> {
        Ok(Arc::new(self.gated(bmc, policy, caller).await?))
    }

    /// The gate of this BMC, in step with its row.
    pub fn gate(&self, bmc: &Bmc) -> Arc<Gate> {
        let gate = self.gates.of(bmc.endpoint.address, bmc.endpoint.port());
        gate.adopt(bmc);
        gate
    }

    async fn gated(&self, bmc: &Bmc, policy: &BmcPolicy, caller: Caller) -> Result<Gated, ProviderError> {
        let endpoint = &bmc.endpoint;
        endpoint.check(policy).map_err(|problem| ProviderError::unusable("bmc connect", problem))?;
        let login = self.login(endpoint).await?;
        let client = self.client(endpoint, policy, &login)?;
        Ok(Gated::new(client, self.gate(bmc), &login, caller, Arc::clone(&self.clock)))
    }

    async fn login(&self, endpoint: &BmcEndpoint) -> Result<BmcLogin, ProviderError> {
        let call = "bmc credential";
        let path = endpoint.credential_path.parse().map_err(|bad| ProviderError::unusable(call, bad))?;
        let missing = |error| ProviderError::no_credential(call, &error);
        let user = read_field(&*self.secrets, &path, "user").await.map_err(missing)?.expose().clone();
        let password = read_field(&*self.secrets, &path, "pass").await.map_err(missing)?;
        Ok(BmcLogin { user, password })
    }

    fn client(
        &self,
        endpoint: &BmcEndpoint,
        policy: &BmcPolicy,
        login: &BmcLogin,
    ) -> Result<Arc<dyn BmcControl>, ProviderError> {
        let address = SocketAddr::new(endpoint.address, endpoint.port());
        let clock = Arc::clone(&self.clock);
        Ok(match &endpoint.way {
            BmcWay::Ipmi { cipher } => {
                Arc::new(IpmiClient::new(IpmiSettings::new(address, *cipher), login.clone(), clock))
            }
            BmcWay::Redfish { tls, system } => {
                let trust = trust(tls, policy)?;
                let (system, answer_within) = (system.clone(), RedfishSettings::ANSWER);
                let settings = RedfishSettings { address, trust, system, answer_within };
                Arc::new(RedfishClient::new(settings, login.clone(), clock)?)
            }
        })
    }
}

#[async_trait]
impl BmcReaders for BmcClients {
    async fn reader(
        &self,
        bmc: &Bmc,
        policy: &BmcPolicy,
        caller: Caller,
    ) -> Result<Arc<dyn BmcObserver>, ProviderError> {
        Ok(Arc::new(self.gated(bmc, policy, caller).await?))
    }

    fn queue(&self, bmc: &Bmc) -> QueueView {
        self.gate(bmc).view()
    }
}

fn trust(tls: &BmcTls, policy: &BmcPolicy) -> Result<RedfishTrust, ProviderError> {
    let unusable = |what: &str| ProviderError::unusable("bmc connect", what);
    Ok(match tls {
        BmcTls::Plain => RedfishTrust::Plain,
        BmcTls::SiteAuthority => {
            let pem = policy.authority_pem.as_ref().ok_or_else(|| unusable("the site has no authority for BMCs"))?;
            RedfishTrust::Authority(pem.clone().into_bytes())
        }
        BmcTls::Pinned { sha256 } => {
            let bytes = hex::decode(sha256).ok().and_then(|bytes| bytes.try_into().ok());
            RedfishTrust::Pinned(bytes.ok_or_else(|| unusable("the pin is not a SHA-256"))?)
        }
    })
}
