//! The BMCs that the suite is held against.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::bmc::{CipherSuite, PowerReading};
use lattice_core::node::PowerFact;
use lattice_core::secret::Secret;
use lattice_core::time::Clock;
use lattice_providers::machine::bmc::{BmcControl, BmcLogin};
use lattice_providers::machine::ipmi::{IpmiClient, IpmiSettings};
use lattice_providers::machine::redfish::{RedfishClient, RedfishSettings, RedfishTrust};
use lattice_sim::bmc::{SimBmc, serve};
use lattice_sim::clock::SystemClock;
use lattice_sim::stop::Stop;
use tokio::net::TcpListener;

/// Longest wait for a machine to do what it was told.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The right password everywhere.
pub const PASSWORD: &str = "password";

/// One BMC, for one test: those of a real emulator are given out in turn.
pub enum Target {
    Simulator { bmc: Arc<SimBmc>, address: SocketAddr, _server: Stop },
    Redfish { address: SocketAddr, system: String },
    Ipmi { address: SocketAddr, cipher: CipherSuite },
}

impl Target {
    pub async fn simulator() -> Self {
        Self::simulator_with(Arc::new(SystemClock)).await
    }

    /// One whose machine has that clock.
    pub async fn simulator_with(clock: Arc<dyn Clock>) -> Self {
        let bmc = SimBmc::new("admin", PASSWORD, clock);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self::Simulator { _server: serve(listener, Arc::clone(&bmc)), bmc, address }
    }

    /// One of the emulator's systems: no two tests share one.
    pub fn redfish(variable: &str, index: u128) -> Option<Self> {
        let system = uuid::Uuid::from_u128(index + 1).to_string();
        Some(Self::Redfish { address: given(variable)?, system })
    }

    pub fn ipmi(variable: &str, cipher: CipherSuite, index: u16) -> Option<Self> {
        let first = given(variable)?;
        Some(Self::Ipmi { address: SocketAddr::new(first.ip(), first.port() + index), cipher })
    }

    pub fn client(&self) -> Arc<dyn BmcControl> {
        self.client_with(PASSWORD)
    }

    pub fn client_with(&self, password: &str) -> Arc<dyn BmcControl> {
        match self {
            Self::Simulator { address, .. } => Arc::new(redfish(*address, None, login(password))),
            Self::Redfish { address, system } => Arc::new(redfish(*address, Some(system.clone()), login(password))),
            Self::Ipmi { address, cipher } => {
                Arc::new(IpmiClient::new(IpmiSettings::new(*address, *cipher), login(password), Arc::new(SystemClock)))
            }
        }
    }

    pub const fn sim(&self) -> &Arc<SimBmc> {
        match self {
            Self::Simulator { bmc, .. } => bmc,
            Self::Redfish { .. } | Self::Ipmi { .. } => panic!("only a simulator has faults on request"),
        }
    }
}

pub fn login(password: &str) -> BmcLogin {
    BmcLogin { user: "admin".to_owned(), password: Secret::new(password.to_owned()) }
}

pub fn redfish(address: SocketAddr, system: Option<String>, login: BmcLogin) -> RedfishClient {
    let answer_within = Duration::from_secs(10);
    let settings = RedfishSettings { address, trust: RedfishTrust::Plain, system, answer_within };
    RedfishClient::new(settings, login, Arc::new(SystemClock)).unwrap()
}

/// The address that a variable names.
pub fn given(variable: &str) -> Option<SocketAddr> {
    match std::env::var(variable) {
        Ok(address) => Some(address.parse().unwrap()),
        Err(_) => {
            eprintln!("skipped: {variable} names no BMC");
            None
        }
    }
}

/// Looks until the power is what it should be; each look takes its time at the BMC.
pub async fn reaches(bmc: &dyn BmcControl, wanted: PowerFact) -> PowerReading {
    let looks = async {
        loop {
            let reading = bmc.power().await.unwrap();
            if reading.fact() == wanted {
                return reading;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looks).await.unwrap_or_else(|_| panic!("the power did not go {wanted}"))
}
