//! What every provider of machines must do, held against each of them.
//!
//! The machines in memory always; LXD when `LATTICE_TEST_LXD` names one (see `lxd_real.rs`).
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::node::PowerFact;
use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::error::{ErrorKind, Remedy};
use lattice_providers::machine::fake::{FakeLatency, FakeProvider};
use lattice_providers::machine::lxd::{LxdClient, LxdCredentials, LxdSettings};
use lattice_providers::observer::MachineState;
use lattice_providers::provider::{Creation, GuestAccess, GuestFile, MachineProvider, NewInstance, Stop};

struct FixedClock;
impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(7)
    }
}

/// A provider with the power to reach into its machines.
trait Provider: MachineProvider + GuestAccess {}
impl<T: MachineProvider + GuestAccess> Provider for T {}

fn fake() -> Option<Box<dyn Provider>> {
    Some(Box::new(FakeProvider::new(Arc::new(FixedClock), FakeLatency::default())))
}

fn lxd() -> Option<Box<dyn Provider>> {
    let Some(directory) = std::env::var_os("LATTICE_TEST_LXD") else {
        eprintln!("skipped: LATTICE_TEST_LXD names no LXD");
        return None;
    };
    let read = |name: &str| std::fs::read_to_string(Path::new(&directory).join(name)).unwrap();
    let credentials = LxdCredentials {
        client_cert: read("cl.crt"),
        client_key: Secret::new(read("cl.key")),
        server_cert: read("dir/server.crt"),
    };
    let url = std::env::var("LATTICE_TEST_LXD_URL").unwrap_or_else(|_| "https://127.0.0.1:18443".to_owned());
    let settings = LxdSettings { api_url: url, project: "default".to_owned() };
    Some(Box::new(LxdClient::new(settings, &credentials, Arc::new(FixedClock)).unwrap()))
}

fn named(name: &str) -> NewInstance {
    NewInstance {
        name: name.to_owned(),
        image: "bb".to_owned(),
        profiles: vec!["default".to_owned()],
        config: BTreeMap::new(),
        user_data: None,
        loopback_port: None,
    }
}

/// Each effect may be repeated with its key; each observation says what was done.
async fn effects_are_idempotent(provider: &dyn Provider) {
    let name = "conf-effects";
    provider.delete(name, "k/delete").await.unwrap();
    assert_eq!(provider.observe(name).await.unwrap(), None);
    assert!(matches!(provider.create(&named(name), "k").await.unwrap(), Creation::Created(_)));
    assert!(matches!(provider.create(&named(name), "k").await.unwrap(), Creation::Adopted(_)));
    let seen = provider.observe(name).await.unwrap().unwrap();
    assert_eq!((seen.state, seen.power, seen.stamp.as_deref()), (MachineState::Stopped, PowerFact::Off, Some("k")));
    for _ in 0..2 {
        provider.start(name, "k/start").await.unwrap();
    }
    let seen = provider.observe(name).await.unwrap().unwrap();
    assert_eq!((seen.state, seen.power), (MachineState::Running, PowerFact::On));
    for _ in 0..2 {
        provider.stop(name, Stop::Hard, "k/stop").await.unwrap();
    }
    assert_eq!(provider.observe(name).await.unwrap().unwrap().power, PowerFact::Off);
    provider.start(name, "k/start").await.unwrap();
    for _ in 0..2 {
        provider.delete(name, "k/delete").await.unwrap();
    }
    assert_eq!(provider.observe(name).await.unwrap(), None);
}

/// A machine that another effect made is not taken over.
async fn a_foreign_machine_is_not_adopted(provider: &dyn Provider) {
    let name = "conf-foreign";
    provider.create(&named(name), "first").await.unwrap();
    let error = provider.create(&named(name), "second").await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::SeveralMatch { .. }), "{error}");
    assert_eq!(error.remedy(), Remedy::Stop);
    let all = provider.observe_all().await.unwrap();
    assert_eq!(all.iter().find(|seen| seen.name == name).unwrap().stamp.as_deref(), Some("first"));
    provider.delete(name, "first/delete").await.unwrap();
}

/// What is not there is said not to be there.
async fn what_is_absent_is_not_found(provider: &dyn Provider) {
    let name = "conf-absent";
    let file = GuestFile { path: "/root/x".to_owned(), content: Secret::new(vec![1]), mode: 0o600 };
    assert!(provider.start(name, "k").await.unwrap_err().is_not_found());
    assert!(provider.stop(name, Stop::Hard, "k").await.unwrap_err().is_not_found());
    assert!(provider.push_file(name, &file).await.unwrap_err().is_not_found());
    assert!(provider.exec(name, &["true"], Duration::from_secs(5)).await.unwrap_err().is_not_found());
}

/// Commands run in a machine that runs, and in no other.
async fn commands_need_a_running_machine(provider: &dyn Provider) {
    let name = "conf-exec";
    provider.create(&named(name), "k").await.unwrap();
    assert!(provider.exec(name, &["true"], Duration::from_secs(5)).await.is_err());
    provider.start(name, "k").await.unwrap();
    assert_eq!(provider.exec(name, &["true"], Duration::from_secs(20)).await.unwrap().code, Some(0));
    provider.delete(name, "k").await.unwrap();
}

async fn conforms(provider: Option<Box<dyn Provider>>) {
    let Some(provider) = provider else { return };
    effects_are_idempotent(&*provider).await;
    a_foreign_machine_is_not_adopted(&*provider).await;
    what_is_absent_is_not_found(&*provider).await;
    commands_need_a_running_machine(&*provider).await;
}

#[tokio::test]
async fn machines_in_memory_conform() {
    conforms(fake()).await;
}

#[tokio::test]
async fn lxd_conforms() {
    conforms(lxd()).await;
}
