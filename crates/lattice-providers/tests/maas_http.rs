//! The MAAS client over real HTTP, against a server that answers as the contract says, quirk by quirk.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lattice_core::secret::Secret;
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::error::{ErrorKind, ProviderError};
use lattice_providers::machine::maas::follow::FollowLimits;
use lattice_providers::machine::maas::lifecycle::{Commission, Deploy, Erase};
use lattice_providers::machine::maas::machines::{Creation, MachineFilter, NewMachine, PowerSetup, Presence};
use lattice_providers::machine::maas::power::PowerOn;
use lattice_providers::machine::maas::{
    ClientSettings, HttpTransport, MaasClient, MaasObserver, MachineStatus, RetryPolicy, Roots, SystemId,
};
use lattice_providers::observer::MachineObserver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const READY: &str = include_str!("fixtures/maas-machine-ready.json");

/// What the server does with one request.
enum Play {
    /// Answers with a status line and headers, an empty line and a body.
    Answer(&'static str, String),
    /// Reads the request and closes the connection.
    Drop,
    /// Reads the request and never answers.
    Hang,
}

fn json(body: impl Into<String>) -> Play {
    Play::Answer("200 OK\r\ncontent-type: application/json", body.into())
}

fn text(head: &'static str, body: &str) -> Play {
    Play::Answer(head, body.to_owned())
}

struct FixedClock;
impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_795_253_832_000)
    }
}

struct Region {
    client: Arc<MaasClient>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Region {
    /// A region that plays `plays` in order, one per request, and then refuses to answer.
    async fn playing(plays: Vec<Play>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&heard);
        tokio::spawn(async move {
            let mut open = Vec::new();
            for play in plays {
                let (mut socket, _) = listener.accept().await.unwrap();
                let request = read_request(&mut socket).await;
                log.lock().unwrap().push(request);
                match play {
                    Play::Answer(head, body) => {
                        let length = body.len();
                        let answer =
                            format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
                        socket.write_all(answer.as_bytes()).await.unwrap();
                    }
                    Play::Drop => drop(socket),
                    Play::Hang => open.push(socket),
                }
            }
            std::future::pending::<()>().await;
        });
        Self { client: client_of(&format!("http://{address}/MAAS")), heard }
    }

    /// The requests so far: request line, headers and body of each.
    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    #[track_caller]
    fn heard_lines(&self, want: &[&str]) {
        let lines: Vec<String> = self
            .heard()
            .iter()
            .map(|request| request.lines().next().unwrap_or_default().replace("/MAAS/api/2.0/", ""))
            .collect();
        assert_eq!(lines.iter().map(|line| line.trim_end_matches(" HTTP/1.1")).collect::<Vec<_>>(), want);
    }
}

fn client_of(url: &str) -> Arc<MaasClient> {
    let transport = Arc::new(HttpTransport::new(url, &Roots::System).unwrap());
    let settings = ClientSettings {
        nonce_prefix: "test".to_owned(),
        retry: RetryPolicy { tries: 3, first_pause: Duration::ZERO },
    };
    let key = Secret::new("ckey:tokenkey:topsecret".to_owned());
    Arc::new(MaasClient::new(&key, settings, transport, Arc::new(FixedClock)).ok().unwrap())
}

async fn read_request(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let count = socket.read(&mut chunk).await.unwrap();
        bytes.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok())
                .unwrap_or(0);
            if body.len() >= length {
                return text;
            }
        }
        assert!(count > 0, "the request ended early: {text}");
    }
}

fn id() -> SystemId {
    "hmt77t".parse().unwrap()
}

fn new_machine() -> NewMachine {
    NewMachine {
        architecture: "amd64/generic".to_owned(),
        hostname: "c07u43".to_owned(),
        macs: vec!["52:54:00:00:00:13".to_owned()],
        power: PowerSetup::ipmi("10.176.16.128", "root", Secret::new("bmcpass77".to_owned())),
    }
}

fn deploy() -> Deploy {
    Deploy {
        distro_series: "gpuaas-mi300x".to_owned(),
        user_data: Some(Secret::new("#cloud-config\n".to_owned())),
        enable_hw_sync: true,
        comment: None,
    }
}

#[track_caller]
fn kind<T>(outcome: Result<T, ProviderError>) -> ErrorKind {
    outcome.err().expect("an error").kind
}

#[tokio::test]
async fn a_call_is_signed_and_its_form_is_encoded() {
    let region = Region::playing(vec![json(READY)]).await;
    region.client.deploy(&id(), deploy()).await.unwrap();
    let heard = region.heard().remove(0);
    assert!(heard.starts_with("POST /MAAS/api/2.0/machines/hmt77t/?op=deploy HTTP/1.1\r\n"), "{heard}");
    assert!(heard.contains("content-type: application/x-www-form-urlencoded"), "{heard}");
    assert!(heard.contains("oauth_signature=\"%26topsecret\", oauth_nonce=\"test-0\", oauth_timestamp=\"1795253832\""));
    let body = heard.split_once("\r\n\r\n").unwrap().1;
    assert_eq!(body, "distro_series=custom%2Fgpuaas-mi300x&enable_hw_sync=true&user_data=I2Nsb3VkLWNvbmZpZwo%3D");
}

#[tokio::test]
async fn a_nonce_that_was_used_is_replaced_even_for_a_change() {
    let used = text("401 Unauthorized\r\ncontent-type: text/html", "Authorization Error: Nonce already used: test-0.");
    let region = Region::playing(vec![used, json(READY)]).await;
    region.client.commission(&id(), Commission::default()).await.unwrap();
    let nonces: Vec<bool> = region.heard().iter().map(|request| request.contains("\"test-1\"")).collect();
    assert_eq!(nonces, [false, true]);
    let count = region.client.counts()["machines.commission"];
    assert_eq!((count.calls, count.retries, count.failures), (1, 1, 0));
}

#[tokio::test]
async fn a_wrong_key_is_unauthorised_in_both_of_its_forms() {
    let plain = text("400 Bad Request\r\ncontent-type: text/plain", "Unrecognised signature: method=GET op=None");
    let html = text("401 Unauthorized\r\ncontent-type: text/html", "Authorization Error: Invalid API key.");
    let region = Region::playing(vec![plain, html]).await;
    for _ in 0..2 {
        assert!(matches!(kind(region.client.machine(&id()).await), ErrorKind::Unauthorised { .. }));
    }
}

#[tokio::test]
async fn a_lost_answer_to_a_change_is_ambiguous_and_never_repeated() {
    let gateway = text("504 Gateway Time-out\r\ncontent-type: text/html", "<html>504 Gateway Time-out</html>");
    let region = Region::playing(vec![gateway, Play::Drop]).await;
    for _ in 0..2 {
        assert!(matches!(kind(region.client.deploy(&id(), deploy()).await), ErrorKind::Ambiguous { .. }));
    }
    assert_eq!(region.heard().len(), 2);
}

#[tokio::test]
async fn a_lost_answer_to_a_read_is_asked_again() {
    let gateway = text("502 Bad Gateway\r\ncontent-type: text/html", "<html>502</html>");
    let region = Region::playing(vec![gateway, Play::Drop, json(format!("[{READY}]"))]).await;
    let machine = region.client.machine(&id()).await.unwrap().unwrap();
    assert_eq!(machine.status, MachineStatus::Ready);
    region.heard_lines(&["GET machines/?id=hmt77t"; 3]);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable_after_bounded_tries() {
    let client = client_of("http://127.0.0.1:1/MAAS");
    assert!(matches!(kind(client.deploy(&id(), deploy()).await), ErrorKind::Unreachable { .. }));
    assert_eq!(client.counts()["machines.deploy"].retries, 2);
}

#[tokio::test]
async fn a_conflict_is_final_without_and_passing_with_retry_after() {
    let state = text("409 Conflict", "Invalid transition: New -> Deploying.");
    let serial = text("409 Conflict\r\nretry-after: 5", "");
    let region = Region::playing(vec![state, serial]).await;
    assert!(matches!(kind(region.client.deploy(&id(), deploy()).await), ErrorKind::Refused { status: 409, .. }));
    let busy = kind(region.client.deploy(&id(), deploy()).await);
    assert_eq!(busy, ErrorKind::RetryLater { after: Duration::from_secs(5) });
}

#[tokio::test]
async fn a_locked_machine_is_forbidden_though_the_body_is_empty() {
    let region = Region::playing(vec![text("403 Forbidden", "")]).await;
    let error = region.client.release(&id(), Erase::Quick, "done").await.err().unwrap();
    assert!(error.to_string().contains("may be locked"), "{error}");
    let body = region.heard().remove(0).split_once("\r\n\r\n").unwrap().1.to_owned();
    assert_eq!(body, "comment=done&erase=true&quick_erase=true");
}

#[tokio::test]
async fn creating_twice_adopts_the_machine_with_the_same_hardware_address() {
    let taken = text(
        "400 Bad Request\r\ncontent-type: application/json",
        r#"{"mac_addresses": ["MAC address 52:54:00:00:00:13 already in use by hmt77t."]}"#,
    );
    let region = Region::playing(vec![taken, json(format!("[{READY}]"))]).await;
    let creation = region.client.create_or_adopt(&new_machine()).await.unwrap();
    assert!(matches!(&creation, Creation::Adopted(machine) if machine.system_id == id()), "{creation:?}");
    region.heard_lines(&["POST machines/", "GET machines/?mac_address=52%3A54%3A00%3A00%3A00%3A13"]);
    let form = region.heard().remove(0);
    assert!(form.contains("commission=false") && form.contains("power_parameters_power_pass=bmcpass77"), "{form}");
}

#[tokio::test]
async fn a_create_whose_answer_was_lost_stays_ambiguous_while_nothing_is_there() {
    let region = Region::playing(vec![Play::Drop, json("[]"), json("[]")]).await;
    assert!(matches!(kind(region.client.create_or_adopt(&new_machine()).await), ErrorKind::Ambiguous { .. }));
}

#[tokio::test]
async fn a_host_name_on_other_hardware_is_not_adopted() {
    let other = READY
        .replace("52:54:00:00:00:13", "52:54:00:00:00:99")
        .replace("\"hostname\": ", "\"hostname\": \"c07u43\", \"x\": ");
    let taken = text("400 Bad Request", r#"{"hostname": ["Node with hostname 'c07u43' already exists"]}"#);
    let region = Region::playing(vec![taken, json("[]"), json(format!("[{other}]"))]).await;
    let error = region.client.create_or_adopt(&new_machine()).await.err().unwrap();
    assert!(matches!(error.kind, ErrorKind::SeveralMatch { .. }), "{error}");
}

#[tokio::test]
async fn no_secret_of_a_request_reaches_an_error() {
    let echo = "bad: bmcpass77 I2Nsb3VkLWNvbmZpZwo= topsecret tokenkey";
    let region = Region::playing(vec![text("500 Oops", echo), json("[]"), json("[]"), text("400 Bad", echo)]).await;
    let created = region.client.create_or_adopt(&new_machine()).await.err().unwrap();
    let deployed = region.client.deploy(&id(), deploy()).await.err().unwrap();
    for (text, secrets) in [
        (format!("{created} {created:?}"), ["bmcpass77", "topsecret", "tokenkey"]),
        (format!("{deployed} {deployed:?}"), ["I2Nsb3VkLWNvbmZpZwo=", "topsecret", "tokenkey"]),
    ] {
        assert!(text.contains("bad: ") && secrets.iter().all(|secret| !text.contains(secret)), "{text}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_the_promised_one_is_malformed_and_not_quoted() {
    let token = r#"{"consumer_key": 7, "token_key": "tttt", "token_secret": "ssss"}"#;
    let region =
        Region::playing(vec![json(token), text("200 OK\r\ncontent-type: text/html", "<html>login</html>")]).await;
    let error = region.client.machine_token(&id()).await.err().unwrap();
    assert!(matches!(error.kind, ErrorKind::Malformed { .. }) && !error.to_string().contains("tttt"), "{error}");
    assert!(matches!(kind(region.client.version().await), ErrorKind::Malformed { .. }));
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_the_credential() {
    let region = Region::playing(vec![text("302 Found\r\nlocation: http://127.0.0.1:1/", "")]).await;
    assert!(matches!(kind(region.client.whoami().await), ErrorKind::Malformed { .. }));
}

#[tokio::test]
async fn absence_is_proved_by_the_machine_itself() {
    let none = text("404 Not Found", "No Machine matches the given query.");
    let nothing = text("404 Not Found", "Unknown API endpoint: /MAAS/api/2.0/machines/hmt77t/.");
    let region = Region::playing(vec![none, json(READY), nothing]).await;
    assert_eq!(region.client.presence(&id()).await.unwrap(), Presence::Absent);
    assert_eq!(region.client.presence(&id()).await.unwrap(), Presence::Present);
    assert!(matches!(kind(region.client.presence(&id()).await), ErrorKind::Malformed { .. }));
}

#[tokio::test]
async fn deleting_what_is_gone_is_success() {
    let region =
        Region::playing(vec![text("204 No Content", ""), text("404 Not Found", "No Machine matches the given query.")])
            .await;
    region.client.delete(&id()).await.unwrap();
    region.client.delete(&id()).await.unwrap();
}

#[tokio::test]
async fn a_machine_is_started_only_when_its_bmc_says_off() {
    let state = |word: &str| json(format!("{{\"state\": \"{word}\"}}"));
    let region = Region::playing(vec![state("on"), state("error"), state("unknown"), state("off"), json(READY)]).await;
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        outcomes.push(region.client.ensure_on(&id()).await.unwrap());
    }
    assert_eq!(outcomes, [PowerOn::WasOn, PowerOn::Unknown, PowerOn::Unknown, PowerOn::Started]);
    assert_eq!(region.heard().iter().filter(|request| request.starts_with("POST")).count(), 1);
}

#[tokio::test]
async fn a_null_token_and_a_configuration_of_any_type_are_read() {
    let region = Region::playing(vec![json("null"), json("\"15m\""), json("30"), text("200 OK", "OK")]).await;
    assert!(region.client.machine_token(&id()).await.unwrap().is_none());
    assert_eq!(region.client.config("hardware_sync_interval").await.unwrap().as_deref(), Some("15m"));
    assert_eq!(region.client.config("node_timeout").await.unwrap().as_deref(), Some("30"));
    region.client.set_config("hardware_sync_interval", "5m").await.unwrap();
}

#[tokio::test]
async fn bmc_addresses_are_read_and_their_logins_are_not() {
    let body =
        r#"{"hmt77t": {"power_address": "10.0.0.1", "power_pass": "x"}, "sqeaem": {}, "a b": {"power_address": "y"}}"#;
    let region = Region::playing(vec![json(body)]).await;
    let found = region.client.power_addresses().await.unwrap();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [(id(), "10.0.0.1".to_owned())]);
}

#[tokio::test]
async fn the_observer_lists_once_and_then_reads_only_what_events_name() {
    let page = |events: &str| json(format!("{{\"count\": 1, \"events\": [{events}], \"next_uri\": \"x\"}}"));
    let deploying = READY.replace("\"status\": 4", "\"status\": 9");
    let region = Region::playing(vec![
        page(r#"{"id": 41, "node": "sqeaem", "level": "INFO"}"#),
        json(format!("[{READY}]")),
        page(""),
        page(r#"{"id": 43, "node": "hmt77t"}, {"id": 42, "node": "hmt77t"}"#),
        json(format!("[{deploying}]")),
        page(""),
    ])
    .await;
    let observer = MaasObserver::new(Arc::clone(&region.client), FollowLimits::default());
    assert_eq!(observer.poll(&[]).await.unwrap(), [id()]);
    assert!(observer.poll(&[]).await.unwrap().is_empty());
    assert_eq!(observer.poll(&[]).await.unwrap(), [id()]);
    assert_eq!(observer.observed(&id()).unwrap().machine.status, MachineStatus::Deploying);
    assert_eq!(observer.observe_all().await.unwrap()[0].status, "Deploying");
    region.heard_lines(&[
        "GET events/?op=query&level=DEBUG&limit=200",
        "GET machines/",
        "GET events/?after=40&op=query&level=DEBUG&limit=1000",
        "GET events/?after=40&op=query&level=DEBUG&limit=1000",
        "GET machines/?id=hmt77t",
        "GET events/?after=40&op=query&level=DEBUG&limit=1000",
    ]);
}

#[tokio::test]
async fn a_poll_that_failed_half_way_forgets_nothing() {
    let page = |events: &str| json(format!("{{\"events\": [{events}]}}"));
    let region = Region::playing(vec![
        page(""),
        json(format!("[{READY}]")),
        page(r#"{"id": 5, "node": "hmt77t"}"#),
        text("500 Oops", "boom"),
        page(""),
        json("[]"),
    ])
    .await;
    let observer = MaasObserver::new(Arc::clone(&region.client), FollowLimits::default());
    observer.poll(&[]).await.unwrap();
    assert!(matches!(kind(observer.poll(&[]).await), ErrorKind::ServerFailed { .. }));
    assert!(observer.observed(&id()).is_some());
    assert_eq!(observer.poll(&[]).await.unwrap(), [id()]);
    assert_eq!(observer.observed(&id()), None);
}

#[tokio::test]
async fn a_large_listing_is_read() {
    let machine = READY.replace("\"hostname\": ", "\"hostname\": \"x\", \"other\": ");
    let region = Region::playing(vec![json(format!("[{}]", vec![machine.as_str(); 200].join(",")))]).await;
    assert_eq!(region.client.machines(&MachineFilter::default()).await.unwrap().len(), 200);
}

#[tokio::test]
async fn silent_bmcs_do_not_hold_up_other_calls() {
    let mut plays: Vec<Play> = (0..20).map(|_| Play::Hang).collect();
    plays[16] = json("{\"version\": \"3.7.3\"}");
    let region = Region::playing(plays).await;
    let asking: Vec<_> = (0..17)
        .map(|_| {
            let client = Arc::clone(&region.client);
            tokio::spawn(async move { client.query_power(&id()).await })
        })
        .collect();
    while region.heard().len() < 16 {
        tokio::task::yield_now().await;
    }
    assert_eq!(region.client.version().await.unwrap().version, "3.7.3");
    asking.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_filter_by_an_unknown_status_does_not_become_a_whole_listing() {
    let region = Region::playing(vec![]).await;
    let filter = MachineFilter { status: Some(MachineStatus::Other(99)), ..MachineFilter::default() };
    assert!(matches!(kind(region.client.machines(&filter).await), ErrorKind::Unusable { .. }));
}

#[tokio::test]
async fn a_cancelled_wait_leaves_nothing_behind() {
    let region = Region::playing(vec![Play::Hang]).await;
    let waiting = region.client.version();
    let outcome = tokio::time::timeout(Duration::from_millis(50), waiting).await;
    assert!(outcome.is_err());
}

#[test]
fn base_urls_that_cannot_be_a_regions_are_refused() {
    for bad in ["", "10.0.0.1:5240", "ftp://a/MAAS", "http://user:pw@a/MAAS", "http://a/MAAS?x=1"] {
        assert!(HttpTransport::new(bad, &Roots::System).is_err(), "{bad}");
    }
    assert!(HttpTransport::new("https://maas.example/MAAS/", &Roots::Pem(b"no".to_vec())).is_err());
}
