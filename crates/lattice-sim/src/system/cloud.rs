//! The provider of instances: hosts are created, switched, deleted and reached into. Calls fail, with and without an
//! effect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lattice_core::bmc::Bmc;
use lattice_core::node::PowerFact;
use lattice_core::site::Site;
use lattice_core::time::Clock;
use lattice_providers::error::{ErrorKind, ProviderError};
use lattice_providers::machine::bmc::{BmcControl, BmcGates, Caller, Gate};
use lattice_providers::machine::maas::MaasObserver;
use lattice_providers::observer::{MachineObservation, MachineObserver, MachineState};
use lattice_providers::provider::{
    CommandOutput, Creation, GuestAccess, GuestFile, MachineProvider, NewInstance, Stop,
};
use lattice_workflow::providers::{InstanceHost, Providers, Shell, ShellTarget};

use super::acts::{Act, Deed, FRESH, For, RULE, Seen, misdeeds};
use super::bmc::Controller;
use super::ground::Ground;
use super::host::{Host, Power};
use super::network::Network;
use super::server::Life;

/// All hosts, by name. They outlive every server.
pub struct Cloud {
    ground: Arc<Ground>,
    network: Arc<Network>,
    hosts: Mutex<BTreeMap<String, Arc<Host>>>,
}

impl Cloud {
    /// One without hosts.
    pub fn new(ground: &Arc<Ground>, network: &Arc<Network>) -> Self {
        Self { ground: Arc::clone(ground), network: Arc::clone(network), hosts: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Host>>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, by name.
    pub fn hosts(&self) -> Vec<Arc<Host>> {
        self.lock().values().cloned().collect()
    }

    /// One of them.
    pub fn host(&self, name: &str) -> Option<Arc<Host>> {
        self.lock().get(name).cloned()
    }

    fn create(&self, name: &str, stamp: &str) -> Arc<Host> {
        let host = Arc::new(Host::new(name, stamp, &self.ground, &self.network));
        self.lock().insert(name.to_owned(), Arc::clone(&host));
        host
    }

    fn delete(&self, name: &str) {
        if let Some(host) = self.lock().remove(name) {
            host.cut_power();
        }
    }
}

/// The provider as one server reaches it: after that server's death nothing arrives any more.
#[derive(Clone)]
pub struct Reach {
    /// What there is.
    pub cloud: Arc<Cloud>,
    /// Whose calls these are.
    pub life: Arc<Life>,
    /// The gates of its BMCs.
    pub gates: Arc<BmcGates>,
}

impl Reach {
    pub(super) fn ground(&self) -> &Ground {
        &self.cloud.ground
    }

    /// The time.
    pub(super) fn cloud_clock(&self) -> &dyn Clock {
        &*self.cloud.ground.clock
    }

    /// One call: it takes a while, and may fail with or without its effect.
    pub(super) async fn call<T>(
        &self,
        what: &str,
        effect: impl FnOnce(&Cloud) -> Result<T, ErrorKind>,
    ) -> Result<T, ProviderError> {
        let (luck, failing) = (&self.ground().provider, self.ground().weather().provider);
        let pause = if luck.once_in(failing) { luck.millis(1_000, 40_000) } else { luck.millis(5, 300) };
        tokio::time::sleep(pause).await;
        if !self.life.lives() {
            std::future::pending::<()>().await;
        }
        let outcome = if luck.once_in(failing) {
            let kind = match luck.below(3) {
                0 => ErrorKind::Unreachable { detail: "no route to host".to_owned() },
                1 => ErrorKind::RetryLater { after: Duration::from_secs(7) },
                _ => {
                    // The caller must not learn what came of it.
                    let _lost = effect(&self.cloud);
                    ErrorKind::Ambiguous { detail: "the connection broke".to_owned() }
                }
            };
            Err(kind)
        } else {
            effect(&self.cloud)
        };
        tokio::time::sleep(luck.millis(1, 50)).await;
        outcome.map_err(|kind| ProviderError::new(format!("sim {what}"), kind))
    }

    /// Something is about to be done to a machine: it is judged as things stand now.
    pub(super) fn judge(&self, deed: Deed, (name, key): (&str, &str), whose: Option<For>, looked_at: &str) {
        if !self.life.lives() {
            return;
        }
        let (ground, host) = (self.ground(), self.cloud.host(name));
        let act = Act {
            deed,
            key,
            whose,
            server: &self.life.name,
            at: ground.clock.now(),
            unset: ground.unset_now(FRESH),
            seen: self.life.take_seen(looked_at),
            stamp: host.as_ref().map(|host| host.stamp()),
            running: host.map(|host| host.running()).unwrap_or_default(),
        };
        let wrong = misdeeds(&ground.model(), &act);
        wrong.into_iter().for_each(|what| ground.wrong(format!("{RULE}: {what}")));
    }

    /// The gate of a BMC, in step with its row.
    pub(super) fn gate(&self, bmc: &Bmc) -> Arc<Gate> {
        let gate = self.gates.of(bmc.endpoint.address, bmc.endpoint.port());
        gate.adopt(bmc);
        gate
    }

    /// The server is told something of a machine.
    pub(super) fn saw(&self, looked_at: &str, power: PowerFact, key: Option<&str>) {
        if self.life.lives() {
            let at = self.ground().clock.now();
            self.life.saw(looked_at, Seen { at, power, key: key.map(str::to_owned) });
        }
    }

    fn observation(&self, host: &Host) -> MachineObservation {
        let (state, status, power) = match host.power() {
            Power::Off => (MachineState::Stopped, "Stopped", PowerFact::Off),
            Power::Starting => (MachineState::Changing, "Starting", PowerFact::On),
            Power::On => (MachineState::Running, "Running", PowerFact::On),
        };
        MachineObservation {
            provider_ref: host.name.clone(),
            name: host.name.clone(),
            state,
            status: status.to_owned(),
            power,
            addresses: Vec::new(),
            stamp: Some(host.stamp()),
            observed_at: self.ground().clock.now(),
        }
    }
}

fn found(cloud: &Cloud, name: &str) -> Result<Arc<Host>, ErrorKind> {
    cloud.host(name).ok_or_else(|| ErrorKind::NotFound { message: "there is no such instance".to_owned() })
}

fn says(cloud: &Cloud, what: &str, name: &str) {
    cloud.ground.log.say(format!("provider {what} {name}"));
}

#[async_trait]
impl MachineObserver for Reach {
    async fn observe(&self, name: &str) -> Result<Option<MachineObservation>, ProviderError> {
        let found = self.call("observe", |cloud| Ok(cloud.host(name).map(|host| self.observation(&host)))).await?;
        if let Some(found) = &found {
            self.saw(name, found.power, None);
        }
        Ok(found)
    }

    async fn observe_all(&self) -> Result<Vec<MachineObservation>, ProviderError> {
        self.call("observe", |cloud| Ok(cloud.hosts().iter().map(|host| self.observation(host)).collect())).await
    }
}

#[async_trait]
impl MachineProvider for Reach {
    async fn create(&self, new: &NewInstance, key: &str) -> Result<Creation, ProviderError> {
        let created = self.call("create", |cloud| match cloud.host(&new.name) {
            Some(there) if there.stamp() == key => Ok(Creation::Adopted(self.observation(&there))),
            Some(_) => Err(ErrorKind::SeveralMatch { what: format!("{} is there already", new.name) }),
            None => {
                says(cloud, "creates", &new.name);
                Ok(Creation::Created(self.observation(&cloud.create(&new.name, key))))
            }
        });
        let created = created.await?;
        let (Creation::Created(found) | Creation::Adopted(found)) = &created;
        self.saw(&found.name, found.power, Some(key));
        Ok(created)
    }

    async fn start(&self, name: &str, key: &str) -> Result<(), ProviderError> {
        self.judge(Deed::On, (name, key), For::of_key(key), name);
        self.call("start", |cloud| {
            says(cloud, "starts", name);
            found(cloud, name).map(|host| host.switch_on())
        })
        .await
    }

    async fn stop(&self, name: &str, _: Stop, key: &str) -> Result<(), ProviderError> {
        self.judge(Deed::Off, (name, key), For::of_key(key), name);
        let stopped = self.call("stop", |cloud| {
            says(cloud, "stops", name);
            found(cloud, name).map(|host| host.cut_power())
        });
        stopped.await?;
        self.saw(name, PowerFact::Off, Some(key));
        Ok(())
    }

    async fn delete(&self, name: &str, key: &str) -> Result<(), ProviderError> {
        self.judge(Deed::Delete, (name, key), For::of_key(key), name);
        self.call("delete", |cloud| {
            says(cloud, "deletes", name);
            cloud.delete(name);
            Ok(())
        })
        .await
    }
}

#[async_trait]
impl GuestAccess for Reach {
    async fn push_file(&self, name: &str, file: &GuestFile) -> Result<(), ProviderError> {
        self.call("push_file", |cloud| {
            found(cloud, name).map(|host| host.write(&file.path, file.content.expose().clone()))
        })
        .await
    }

    async fn exec(&self, name: &str, command: &[&str], _: Duration) -> Result<CommandOutput, ProviderError> {
        self.call("exec", |cloud| {
            let host = found(cloud, name)?;
            if host.power() != Power::On {
                return Err(ErrorKind::Refused { status: 400, message: "the instance does not run".to_owned() });
            }
            let ended = |code, stdout| CommandOutput { code: Some(code), stdout, stderr: Vec::new(), truncated: false };
            Ok(match command {
                ["/bin/cat", path] => host.file(path).map_or_else(|| ended(1, Vec::new()), |text| ended(0, text)),
                ["/bin/sh", ..] => {
                    host.start_agent();
                    ended(0, Vec::new())
                }
                _ => ended(0, Vec::new()),
            })
        })
        .await
    }
}

#[async_trait]
impl Providers for Reach {
    async fn instances(&self, _: &Site) -> Result<Arc<dyn InstanceHost>, ProviderError> {
        Ok(Arc::new(self.clone()))
    }

    async fn maas(&self, _: &Site) -> Result<Arc<MaasObserver>, ProviderError> {
        Err(ProviderError::unusable("maas", "there is none here"))
    }

    async fn bmc(&self, _: &Site, bmc: &Bmc, caller: Caller) -> Result<Arc<dyn BmcControl>, ProviderError> {
        Ok(Arc::new(Controller::new(self.clone(), bmc.node, caller).gated(bmc)))
    }

    async fn shell(&self, _: &ShellTarget) -> Result<Box<dyn Shell>, ProviderError> {
        Err(ProviderError::unusable("ssh", "there is none here"))
    }
}
