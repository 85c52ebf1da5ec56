//! Three real containers become nodes with the real agent inside; one loses its agent, one is killed whole, and both
//! are seen, explained and put right; then all three are removed. Everything by the command line of a real server.
//!
//! `LATTICE_TEST_LXD` names the directory of an LXD with the image alias `bb` (`cl.crt`, `cl.key`, `dir/server.crt`),
//! `LATTICE_TEST_LXD_URL` its address, `LATTICE_TEST_AGENT` the agent's static binary. Without them the test says that
//! it is skipped. spec: S5 10, S1 "Transitions"
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest wait for anything: a quiet machine needs a tenth of it.
const PATIENCE: Duration = Duration::from_secs(120);
/// The nodes.
const NAMES: [&str; 3] = ["lab-1", "lab-2", "lab-3"];
/// Silence after which a node of the site is degraded, and further silence after which it is down, in milliseconds.
const WINDOW_MS: u64 = 3_000;
const GRACE_MS: u64 = 5_000;

/// What the test needs from outside.
struct Given {
    lxd: PathBuf,
    url: String,
    agent: PathBuf,
}

impl Given {
    fn find() -> Option<Self> {
        let (Some(lxd), Some(agent)) = (std::env::var_os("LATTICE_TEST_LXD"), std::env::var_os("LATTICE_TEST_AGENT"))
        else {
            eprintln!("skipped: LATTICE_TEST_LXD and LATTICE_TEST_AGENT name no LXD and no agent");
            return None;
        };
        let url = std::env::var("LATTICE_TEST_LXD_URL").unwrap_or_else(|_| "https://127.0.0.1:18443".to_owned());
        Some(Self { lxd: lxd.into(), url, agent: agent.into() })
    }

    /// LXD's own client: the hand of whoever pulls plugs.
    fn lxc(&self, words: &[&str]) -> String {
        let lxc =
            Command::new("lxc").args(words).env("LXD_DIR", self.lxd.join("dir")).stdin(Stdio::null()).output().unwrap();
        assert!(lxc.status.success(), "lxc {words:?}: {}", String::from_utf8_lossy(&lxc.stderr));
        String::from_utf8(lxc.stdout).unwrap()
    }

    fn instances(&self) -> Vec<String> {
        let listed = self.lxc(&["list", "--format", "csv", "--columns", "n"]);
        listed.lines().map(str::to_owned).filter(|name| NAMES.contains(&name.as_str())).collect()
    }

    fn kill_agent(&self, name: &str) {
        self.lxc(&["exec", name, "--", "/bin/killall", "-9", "lattice-agent"]);
    }

    /// As an init system would.
    fn start_agent(&self, name: &str) {
        let start =
            "exec setsid /usr/local/bin/lattice-agent run >>/var/log/lattice-agent.log 2>&1 </dev/null &".to_owned();
        self.lxc(&["exec", name, "--", "/bin/sh", "-c", &start]);
    }

    /// Takes bootstrap file and identity out of a container, as a thief would.
    fn steal(&self, name: &str, to: &Path) -> Stolen {
        self.lxc(&["file", "pull", &format!("{name}/etc/lattice/bootstrap.json"), &to.display().to_string()]);
        self.lxc(&["file", "pull", "--recursive", &format!("{name}/var/lib/lattice"), &to.display().to_string()]);
        Stolen { bootstrap: to.join("bootstrap.json"), state: to.join("lattice") }
    }

    /// Runs the agent on this host until it says `refusal`: one that may pass is tried again for ever.
    fn refused_agent(&self, bootstrap: &Path, state: &Path, refusal: &str) {
        let mut agent = Command::new("timeout");
        agent.arg(PATIENCE.as_secs().to_string()).arg(&self.agent).arg("run");
        agent.arg("--bootstrap").arg(bootstrap).arg("--state-dir").arg(state);
        let mut agent = Running(agent.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let mut said = Vec::new();
        for line in BufReader::new(agent.0.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            eprintln!("lattice-agent: {line}");
            if line.contains(refusal) {
                // `timeout` hands SIGTERM on to the agent; SIGKILL would leave it behind.
                Command::new("kill").arg(agent.0.id().to_string()).status().unwrap();
                return;
            }
            said.push(line);
        }
        panic!("it was not refused by `{refusal}`: {said:#?}");
    }
}

struct Stolen {
    bootstrap: PathBuf,
    state: PathBuf,
}

/// A process that ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server as a process of its own, and its command line.
struct Server {
    home: tempfile::TempDir,
    api: SocketAddr,
    token: String,
    _process: Running,
}

impl Server {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let (api, agents) = (free_port(), free_port());
        let (config, data) = (home.path().join("lattice.toml"), home.path().join("data"));
        let text = format!(
            "[server]\ndata_dir = \"{}\"\nname = \"one\"\n[http]\nlisten = \"{api}\"\n[agents]\nlisten = \"{agents}\"\n\
             address = \"https://{agents}\"\n[log]\nlevel = \"warn\"\nformat = \"text\"\n",
            data.display()
        );
        std::fs::write(&config, text).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_lattice"))
            .args(["server", "--config"])
            .arg(&config)
            .env_clear()
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let process = Running(process);
        let token_file = data.join("admin.token");
        let token = until("the first token", || {
            std::fs::read_to_string(&token_file).ok().filter(|text| !text.trim().is_empty())
        });
        let server = Self { home, api, token: token.trim().to_owned(), _process: process };
        until("the server", || server.lattice(&["version"], "").status.success().then_some(()));
        server
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lattice"));
        command.args(words).env_clear().env("HOME", self.home.path()).env("LATTICE_TOKEN", &self.token);
        command.env("LATTICE_SERVER", format!("http://{}", self.api));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn lattice(&self, words: &[&str], stdin: &str) -> Output {
        let mut child = self.command(words).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Stdout of a command that must succeed; the log of the test shows what a person would have seen.
    fn ok(&self, words: &[&str]) -> String {
        self.ok_with(words, "")
    }

    fn ok_with(&self, words: &[&str], stdin: &str) -> String {
        let output = self.lattice(words, stdin);
        shown(words, &output)
    }

    fn json(&self, words: &[&str]) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["-o", "json"]).collect();
        let output = self.lattice(&words, "");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Status and availability of each node.
    fn states(&self) -> Vec<(String, String)> {
        let nodes = self.json(&["node", "list"]);
        let rows = nodes["items"].as_array().unwrap();
        rows.iter()
            .map(|row| {
                let word = |key: &str| row[key].as_str().unwrap().to_owned();
                (word("hostname"), format!("{} / {}", word("status"), word("availability")))
            })
            .collect()
    }

    /// Everything that happens to a node, from its creation on.
    fn follow(&self, node: &str) -> Story {
        let mut child =
            self.command(&["events", "--follow", "--after", "0", "--node", node, "-o", "json"]).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (told, heard) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if told.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        Story { node: node.to_owned(), heard, _follower: Running(child) }
    }
}

fn shown(words: &[&str], output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprintln!("$ lattice {}\n{stdout}{stderr}", words.join(" "));
    assert!(output.status.success(), "{words:?}: {stderr}");
    stdout.into_owned()
}

/// The events of one node, each told once.
struct Story {
    node: String,
    heard: Receiver<Value>,
    _follower: Running,
}

impl Story {
    /// The next event in which the node is in this state, of all that follow the last one asked for.
    fn until(&self, status: &str, availability: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            let event = match self.heard.recv_timeout(rest) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => panic!("{} did not become {status} / {availability}", self.node),
                Err(RecvTimeoutError::Disconnected) => panic!("the events of {} ended", self.node),
            };
            let with = &event["payload"];
            if with["status"] == status && with["availability"] == availability {
                return event;
            }
        }
    }
}

fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Looks until there is something: the start of a server is told by nothing else.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    let (_never, tick) = channel::<()>();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        let _ = tick.recv_timeout(Duration::from_millis(20));
    }
}

fn set_up(server: &Server, given: &Given) {
    let read = |name: &str| std::fs::read_to_string(given.lxd.join(name)).unwrap();
    let agent = given.agent.display().to_string();
    server.ok(&[
        "site",
        "create",
        "lxd",
        "lab",
        "--api-url",
        &given.url,
        "--image",
        "bb",
        "--agent-binary",
        &agent,
        "--set",
        "heartbeat.interval_ms=500",
    ]);
    let (window, grace) =
        (format!("heartbeat.standard.window_ms={WINDOW_MS}"), format!("heartbeat.standard.grace_ms={GRACE_MS}"));
    server.ok(&["site", "set", "lab", &window, &grace]);

    // Another server's certificate is refused before it is kept.
    let wrong = json!({"client_certificate_pem": read("cl.crt"), "client_key_pem": read("cl.key"),
        "server_certificate_pem": read("cl.crt")});
    let refused = server.lattice(&["site", "credentials", "set", "lab", "--from-stdin"], &wrong.to_string());
    let said = String::from_utf8_lossy(&refused.stderr);
    eprintln!("$ lattice site credentials set lab --from-stdin\n{said}");
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("certificate"), "{said}");

    let right = json!({"client_certificate_pem": read("cl.crt"), "client_key_pem": read("cl.key"),
        "server_certificate_pem": read("dir/server.crt")});
    server.ok_with(&["site", "credentials", "set", "lab", "--from-stdin"], &right.to_string());
    server.ok(&["site", "probe", "lab"]);
    server.ok(&["sku", "create", "any"]);
}

fn onboard_all(server: &Server) {
    let following: Vec<(Vec<&str>, Child)> = NAMES
        .iter()
        .map(|name| {
            let words = vec!["onboard", "lxd", name, "--site", "lab", "--sku", "any", "--watch", "--timeout", "2m"];
            let child = server.command(&words).spawn().unwrap();
            (words, child)
        })
        .collect();
    for (words, child) in following {
        let told = shown(&words, &child.wait_with_output().unwrap());
        assert!(told.contains("completed"), "{told}");
    }
    let all_ready: Vec<(String, String)> =
        NAMES.iter().map(|name| ((*name).to_owned(), "active / ready".to_owned())).collect();
    assert_eq!(server.states(), all_ready);
    server.ok(&["node", "list", "-o", "wide"]);
    assert!(server.ok(&["node", "show", "lab-1"]).contains("Running, power on"), "the provider is asked too");
    assert_eq!(server.json(&["fleet"])["schedulable"], 3);
}

/// The agent of lab-1 dies: degraded, down and explained; it is started again and comes back by itself.
fn lose_an_agent(server: &Server, given: &Given) {
    let story = server.follow("lab-1");
    story.until("active", "ready");
    given.kill_agent("lab-1");

    let degraded = story.until("active", "degraded");
    assert_eq!(degraded["payload"]["cause"], "heartbeat_missed");
    let explained = server.ok(&["explain", "node", "lab-1"]);
    assert!(explained.contains("no heartbeat for") && explained.contains("unless it returns"), "{explained}");
    let down = story.until("offline", "down");
    assert_eq!(down["payload"]["cause"], "grace_expired");
    let explained = server.ok(&["explain", "node", "lab-1"]);
    assert!(explained.contains("heartbeat is lost") && explained.contains("lattice-agent runs on it"), "{explained}");
    let others: Vec<String> = server.states().into_iter().skip(1).map(|(_, state)| state).collect();
    assert_eq!(others, ["active / ready", "active / ready"], "the others do not mind");

    given.start_agent("lab-1");
    story.until("active", "ready");
    assert!(server.ok(&["explain", "node", "lab-1"]).contains("schedulable"));
    server.ok(&["node", "timeline", "lab-1"]);
}

/// The container of lab-2 is killed and stays away.
fn lose_a_container(server: &Server, given: &Given) {
    let story = server.follow("lab-2");
    story.until("active", "ready");
    given.lxc(&["stop", "--force", "lab-2"]);
    story.until("active", "degraded");
    story.until("offline", "down");
    let status = server.ok(&["node", "status", "lab-2"]);
    assert!(status.contains("heartbeat_lost"), "{status}");
}

/// A copied bootstrap file opens nothing: its token was used.
fn try_what_was_stolen(given: &Given, stolen: &Stolen) {
    let empty = tempfile::tempdir().unwrap();
    given.refused_agent(&stolen.bootstrap, empty.path(), "the enrolment token was used before");
}

fn remove_all(server: &Server, given: &Given) {
    for name in NAMES {
        server.ok(&["node", "retire", name, "--reason", "end of the lab", "--yes", "--wait", "--timeout", "2m"]);
        assert!(server.ok(&["explain", "node", name]).contains("retired"));
        server.ok(&["node", "remove", name, "--yes", "--wait", "--timeout", "2m"]);
    }
    assert_eq!(given.instances(), Vec::<String>::new());
    assert_eq!(server.states(), []);
    let deleted = server.json(&["node", "list", "--deleted"]);
    let rows = deleted["items"].as_array().unwrap();
    assert!(rows.len() == 3 && rows.iter().all(|row| row["status"] == "deleted"), "{deleted}");
}

#[test]
fn three_containers_become_nodes_are_lost_explained_and_removed() {
    let Some(given) = Given::find() else { return };
    let server = Server::start();
    set_up(&server, &given);
    onboard_all(&server);
    assert_eq!(given.instances(), NAMES);
    lose_an_agent(&server, &given);
    lose_a_container(&server, &given);

    let loot = tempfile::tempdir().unwrap();
    let stolen = given.steal("lab-3", loot.path());
    try_what_was_stolen(&given, &stolen);
    remove_all(&server, &given);
    given.refused_agent(&stolen.bootstrap, &stolen.state, "its identity is never used again");
    let refusals = server.ok(&["audit", "list"]);
    assert!(refusals.contains("node.identity") && refusals.contains("node.enroll"), "{refusals}");
    assert!(server.ok(&["audit", "verify"]).starts_with("intact: "));
}
