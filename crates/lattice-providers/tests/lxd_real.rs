//! The LXD client against a real LXD 5.0.2 with the image alias `bb`.
//!
//! `LATTICE_TEST_LXD` names its directory (`cl.crt`, `cl.key`, `dir/server.crt`), `LATTICE_TEST_LXD_URL` its address
//! (default `https://127.0.0.1:18443`). Without the directory every test says that it is skipped.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::node::PowerFact;
use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::error::{ErrorKind, ProviderError};
use lattice_providers::machine::lxd::{LxdClient, LxdCredentials, LxdSettings};
use lattice_providers::machine::maas::{ClientSettings, HttpTransport, MaasClient, RetryPolicy, Roots};
use lattice_providers::observer::{MachineObserver, MachineState};
use lattice_providers::provider::{Creation, GuestAccess, GuestFile, MachineProvider, NewInstance, Stop};

struct FixedClock;
impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(7)
    }
}

struct Lxd {
    directory: PathBuf,
    url: String,
}

impl Lxd {
    /// The LXD to test against, if there is one.
    fn given() -> Option<Self> {
        let Some(directory) = std::env::var_os("LATTICE_TEST_LXD") else {
            eprintln!("skipped: LATTICE_TEST_LXD names no LXD");
            return None;
        };
        let url = std::env::var("LATTICE_TEST_LXD_URL").unwrap_or_else(|_| "https://127.0.0.1:18443".to_owned());
        Some(Self { directory: directory.into(), url })
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.join(name)).unwrap()
    }

    fn client_pinning(&self, server_cert: String) -> Result<LxdClient, ProviderError> {
        let credentials = LxdCredentials {
            client_cert: self.read("cl.crt"),
            client_key: Secret::new(self.read("cl.key")),
            server_cert,
        };
        let settings = LxdSettings { api_url: self.url.clone(), project: "default".to_owned() };
        LxdClient::new(settings, &credentials, Arc::new(FixedClock))
    }

    fn client(&self) -> LxdClient {
        self.client_pinning(self.read("dir/server.crt")).ok().unwrap()
    }
}

fn new_instance(name: &str) -> NewInstance {
    NewInstance {
        name: name.to_owned(),
        image: "bb".to_owned(),
        profiles: vec!["default".to_owned()],
        config: BTreeMap::from([("user.site".to_owned(), "test".to_owned())]),
        user_data: Some(Secret::new("#cloud-config\n# token-1234\n".to_owned())),
        loopback_port: None,
    }
}

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn an_instance_lives_from_creation_to_deletion_and_every_step_may_be_repeated() {
    let Some(lxd) = Lxd::given() else { return };
    let (client, name) = (lxd.client(), "prov-life");
    client.delete(name, "k").await.unwrap();

    let created = client.create(&new_instance(name), "k1").await.unwrap();
    assert!(matches!(created, Creation::Created(_)), "{created:?}");
    let again = client.create(&new_instance(name), "k1").await.unwrap();
    assert!(matches!(again, Creation::Adopted(_)), "{again:?}");
    let foreign = client.create(&new_instance(name), "k2").await.err().unwrap();
    assert!(matches!(foreign.kind, ErrorKind::SeveralMatch { .. }), "{foreign}");
    let seen = created.into_observation();
    assert_eq!((seen.state, seen.power, seen.stamp.as_deref()), (MachineState::Stopped, PowerFact::Off, Some("k1")));

    for _ in 0..2 {
        client.start(name, "k").await.unwrap();
    }
    let seen = client.observe(name).await.unwrap().unwrap();
    assert_eq!((seen.state, seen.power), (MachineState::Running, PowerFact::On));
    assert!(client.observe_all().await.unwrap().iter().any(|other| other.name == name && other.power == PowerFact::On));

    client.annotate(name, "lattice-drained", "yes").await.unwrap();
    for _ in 0..2 {
        client.stop(name, Stop::Hard, "k").await.unwrap();
    }
    client.start(name, "k").await.unwrap();
    for _ in 0..2 {
        client.delete(name, "k").await.unwrap();
    }
    assert_eq!(client.observe(name).await.unwrap(), None);
}

#[tokio::test]
async fn files_and_commands_reach_the_inside() {
    let Some(lxd) = Lxd::given() else { return };
    let (client, name) = (lxd.client(), "prov-inside");
    client.delete(name, "k").await.unwrap();
    client.create(&new_instance(name), "k").await.unwrap();
    client.start(name, "k").await.unwrap();
    let script = b"#!/bin/sh\necho \"to $1\"; echo err >&2; exit 3\n".to_vec();
    let file = GuestFile { path: "/root/hello".to_owned(), content: Secret::new(script), mode: 0o755 };
    client.push_file(name, &file).await.unwrap();
    let output = client.exec(name, &["/root/hello", "$(whom) it"], LIMIT).await.unwrap();
    assert_eq!(
        (output.code, output.stdout.as_slice(), output.stderr.as_slice()),
        (Some(3), b"to $(whom) it\n".as_slice(), b"err\n".as_slice())
    );
    let output = client.exec(name, &["nosuchprogram"], LIMIT).await.unwrap();
    assert_eq!(output.code, Some(127));
    let output = client.exec(name, &["head", "-c", "100000", "/dev/zero"], LIMIT).await.unwrap();
    assert_eq!((output.stdout.len(), output.truncated), (64 << 10, true));
    let late = client.exec(name, &["sleep", "20"], Duration::from_secs(1)).await.err().unwrap();
    assert!(late.is_ambiguous(), "{late}");
    let nowhere = GuestFile { path: "/no/such/place".to_owned(), content: Secret::new(vec![1]), mode: 0o600 };
    assert!(client.push_file(name, &nowhere).await.err().unwrap().is_not_found());
    client.delete(name, "k").await.unwrap();
}

#[tokio::test]
async fn several_creations_with_one_key_make_one_instance() {
    let Some(lxd) = Lxd::given() else { return };
    let (client, name) = (lxd.client(), "prov-race");
    client.delete(name, "k").await.unwrap();
    let new = new_instance(name);
    let (a, b, c) = tokio::join!(client.create(&new, "k"), client.create(&new, "k"), client.create(&new, "k"));
    for outcome in [a, b, c] {
        assert_eq!(outcome.unwrap().into_observation().stamp.as_deref(), Some("k"));
    }
    client.start(name, "k").await.unwrap();
    client.delete(name, "k").await.unwrap();
}

#[tokio::test]
async fn what_lxd_refuses_is_told_apart() {
    let Some(lxd) = Lxd::given() else { return };
    let client = lxd.client();
    let image = NewInstance { image: "no-such-image".to_owned(), ..new_instance("prov-noimage") };
    let error = client.create(&image, "k").await.err().unwrap();
    assert!(
        error.to_string().contains("Image alias not found") && !error.to_string().contains("token-1234"),
        "{error}"
    );
    let error = client.create(&new_instance("../c1"), "k").await.err().unwrap();
    assert!(matches!(error.kind, ErrorKind::Unusable { .. }), "{error}");
    assert!(client.start("prov-none", "k").await.err().unwrap().is_not_found());
    assert_eq!(client.observe("prov-none").await.unwrap(), None);
}

#[tokio::test]
async fn a_server_with_another_certificate_is_not_talked_to() {
    let Some(lxd) = Lxd::given() else { return };
    let client = lxd.client_pinning(lxd.read("cl.crt")).ok().unwrap();
    let error = client.observe("c1").await.err().unwrap();
    assert!(matches!(error.kind, ErrorKind::BadCertificate { .. }), "{error}");
}

#[tokio::test]
async fn a_region_whose_certificate_nobody_vouches_for_is_not_talked_to() {
    let Some(lxd) = Lxd::given() else { return };
    let key = Secret::new("c:t:s".to_owned());
    for roots in [Roots::System, Roots::Pem(lxd.read("cl.crt").into_bytes())] {
        let transport = Arc::new(HttpTransport::new(&lxd.url, &roots).unwrap());
        let settings = ClientSettings { nonce_prefix: "n".to_owned(), retry: RetryPolicy::default() };
        let client = MaasClient::new(&key, settings, transport, Arc::new(FixedClock)).ok().unwrap();
        let error = client.version().await.err().unwrap();
        assert!(matches!(error.kind, ErrorKind::BadCertificate { .. }), "{error}");
    }
}

#[test]
fn credentials_that_are_none_are_refused_without_being_shown() {
    let credentials = LxdCredentials {
        client_cert: "x".to_owned(),
        client_key: Secret::new("very-secret".to_owned()),
        server_cert: "y".to_owned(),
    };
    let settings = LxdSettings { api_url: "https://127.0.0.1:1".to_owned(), project: "default".to_owned() };
    let error = LxdClient::new(settings, &credentials, Arc::new(FixedClock)).err().unwrap();
    assert!(matches!(error.kind, ErrorKind::Unusable { .. }) && !error.to_string().contains("very-secret"), "{error}");
}
