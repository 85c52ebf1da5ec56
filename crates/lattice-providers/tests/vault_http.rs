//! The Vault client against a server that answers as no good Vault does: slow, elsewhere, HTML, a standby.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::secret::vault::{VaultAuth, VaultSettings, VaultStore};
use lattice_providers::secret::{SecretObject, SecretPath, SecretStore, SecretTrouble};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

struct FixedClock;
impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_795_253_832_000)
    }
}

const TOKEN: &str = "hvs.token-of-the-server";
const GOOD_TOKEN: &str = r#"{"data":{"ttl":0,"renewable":false}}"#;
const GOOD_MOUNT: &str = r#"{"data":{"type":"kv","options":{"version":"2"}}}"#;

/// What answers the request for the secret itself; the login is always good.
enum Play {
    Answer(&'static str, String),
    Drop,
    Hang,
}

struct Fake {
    store: VaultStore,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    async fn playing(play: Play) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&heard);
        let timeout = match &play {
            Play::Hang => Duration::from_millis(300),
            Play::Answer(..) | Play::Drop => Duration::from_secs(20),
        };
        tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let request = read_request(&mut socket).await;
                let first = request.lines().next().unwrap_or_default().to_owned();
                log.lock().unwrap().push(request);
                if first.contains("lookup-self") {
                    answer(&mut socket, "200 OK", GOOD_TOKEN).await;
                } else if first.contains("sys/internal/ui/mounts") {
                    answer(&mut socket, "200 OK", GOOD_MOUNT).await;
                } else {
                    match &play {
                        Play::Answer(head, body) => answer(&mut socket, head, body).await,
                        Play::Drop => drop(socket),
                        Play::Hang => open.push(socket),
                    }
                }
            }
        });
        let settings = VaultSettings {
            address: format!("http://{address}/"),
            mount: "kv".to_owned(),
            namespace: Some("gpu/dc1".to_owned()),
            ca_pem: None,
            auth: VaultAuth::Token { token: Arc::new(|| Ok(Secret::new(TOKEN.to_owned()))) },
            timeout,
        };
        Self { store: VaultStore::new(settings, Arc::new(FixedClock)).unwrap(), heard }
    }

    async fn fails(play: Play) -> (&'static str, SecretTrouble, String) {
        let fake = Self::playing(play).await;
        let error = fake.store.read(&at()).await.map(|_| ()).unwrap_err();
        let said = format!("{error} {error:?} {}", error.told());
        assert!(!said.contains(TOKEN) && said.len() < 4_000, "{said}");
        (error.cause(), error.trouble(), said)
    }
}

async fn answer(socket: &mut TcpStream, head: &str, body: &str) {
    let text = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    socket.write_all(text.as_bytes()).await.unwrap();
}

async fn read_request(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4_096];
        let read = socket.read(&mut piece).await.unwrap();
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            if read == 0 {
                return text;
            }
            continue;
        };
        let length =
            head.to_ascii_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if read == 0 || body.len() >= length.unwrap_or(0) {
            return text;
        }
    }
}

fn at() -> SecretPath {
    "kv/maas-sites/s1/api-token".parse().unwrap()
}

fn text(head: &'static str, body: &str) -> Play {
    Play::Answer(head, body.to_owned())
}

#[tokio::test]
async fn every_bad_answer_is_told_apart() {
    use SecretTrouble::{Misconfigured, Unavailable};
    let html = "<html><head><title>404 Not Found</title></head><body>nginx</body></html>";
    let rows: Vec<(Play, &str, SecretTrouble, &str)> = vec![
        (Play::Hang, "timeout", Unavailable, "did not answer within 0.3 s"),
        (Play::Drop, "unreachable", Unavailable, "cannot be reached"),
        (text("502 Bad Gateway", "<html><title>502 Bad Gateway</title></html>"), "failed", Unavailable, "502"),
        (
            text("500 Internal", r#"{"errors":["1 error occurred:\n\t* disk full"]}"#),
            "failed",
            Unavailable,
            "disk full",
        ),
        (text("429 Too Many", r#"{"errors":["rate limit quota"]}"#), "failed", Unavailable, "rate limit quota"),
        (text("400 Bad", r#"{"errors":["Upgrading from non-versioned"]}"#), "failed", Unavailable, "Upgrading"),
        (text("503 Sealed", r#"{"errors":["Vault is sealed"]}"#), "sealed", Unavailable, "vault operator unseal"),
        (text("501 No", r#"{"errors":["not initialized"]}"#), "uninitialised", Unavailable, "vault operator init"),
        (text("307 Go\r\nlocation: http://127.0.0.1:1/v1/x", ""), "standby", Unavailable, "active server"),
        (text("472 DR", ""), "standby", Unavailable, "standby"),
        // Another server's 404 proves nothing about a secret.
        (text("404 Not Found", html), "malformed", Misconfigured, "404 Not Found nginx"),
        (text("200 OK", html), "malformed", Misconfigured, "no object of texts"),
        (text("200 OK", r#"{"data":{"data":null}}"#), "malformed", Misconfigured, "no object of texts"),
        (text("200 OK", &"x".repeat(2 << 20)), "malformed", Misconfigured, "larger than"),
    ];
    for (play, cause, trouble, words) in rows {
        let (got, kind, said) = Fake::fails(play).await;
        assert_eq!((got, kind), (cause, trouble), "{said}");
        assert!(said.contains(words), "{words} is not in {said}");
    }
}

#[tokio::test]
async fn a_refusal_that_repeats_what_was_sent_does_not_bring_it_into_the_error() {
    let echo = format!(r#"{{"errors":["bad request: {TOKEN} wrote hunter2-the-secret"]}}"#);
    let fake = Fake::playing(text("400 Bad", &echo)).await;
    let object = SecretObject::from([("token".to_owned(), Secret::new("hunter2-the-secret".to_owned()))]);
    let error = fake.store.write(&at(), object).await.unwrap_err();
    let said = format!("{error} {error:?} {}", error.told());
    assert!(!said.contains("hunter2") && said.contains("***"), "{said}");
}

#[tokio::test]
async fn each_request_carries_token_and_namespace_and_follows_nothing() {
    let fake = Fake::playing(text("307 Go\r\nlocation: /v1/kv/data/elsewhere", "")).await;
    assert!(fake.store.read(&at()).await.is_err());
    let heard = fake.heard.lock().unwrap().clone();
    let lines: Vec<&str> = heard.iter().map(|request| request.lines().next().unwrap()).collect();
    assert_eq!(
        lines,
        [
            "GET /v1/auth/token/lookup-self HTTP/1.1",
            "GET /v1/sys/internal/ui/mounts/kv HTTP/1.1",
            "GET /v1/kv/data/maas-sites/s1/api-token HTTP/1.1"
        ]
    );
    for request in &heard {
        let request = request.to_ascii_lowercase();
        let token = format!("x-vault-token: {}", TOKEN.to_ascii_lowercase());
        for header in [token.as_str(), "x-vault-namespace: gpu/dc1", "x-vault-request: true"] {
            assert!(request.contains(header), "{header} is not in {request}");
        }
    }
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_by_their_key() {
    let good = VaultSettings {
        address: "https://vault.dc1:8200".to_owned(),
        mount: "kv".to_owned(),
        namespace: None,
        ca_pem: None,
        auth: VaultAuth::Token { token: Arc::new(|| Err("nothing".to_owned())) },
        timeout: Duration::from_secs(1),
    };
    let rows: Vec<(VaultSettings, &str)> = vec![
        (VaultSettings { address: "vault".into(), ..good.clone() }, "secrets.vault_address"),
        (VaultSettings { address: "https://u:p@vault".into(), ..good.clone() }, "secrets.vault_address"),
        (VaultSettings { address: "ftp://vault".into(), ..good.clone() }, "secrets.vault_address"),
        (VaultSettings { mount: "/".into(), ..good.clone() }, "secrets.vault_mount"),
        (VaultSettings { mount: "k v".into(), ..good.clone() }, "secrets.vault_mount"),
        (VaultSettings { namespace: Some("a\nb".into()), ..good.clone() }, "secrets.vault_namespace"),
        (VaultSettings { ca_pem: Some(b"none".to_vec()), ..good }, "secrets.vault_ca_file"),
    ];
    for (settings, key) in rows {
        let error = VaultStore::new(settings, Arc::new(FixedClock)).err().unwrap();
        assert!(error.to_string().contains(key), "{error}");
        assert_eq!(error.trouble(), SecretTrouble::Misconfigured);
    }
}
