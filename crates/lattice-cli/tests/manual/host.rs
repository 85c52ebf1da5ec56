//! A host of its own on this machine: /etc, /usr/local, /var/lib and /run are its own, and nobody else sees them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt;

/// Longest time a test waits for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What is written lands in memory and goes with the namespace; no systemd is seen.
const SETUP: &str = r#"set -e
mount -t tmpfs tmpfs "$1"
for at in etc usr/local var/lib; do
  mkdir -p "$1/$at/upper" "$1/$at/work"
  mount -t overlay overlay -o "lowerdir=/$at,upperdir=$1/$at/upper,workdir=$1/$at/work" "/$at"
done
mount -t tmpfs tmpfs /run
echo ready
exec cat"#;

/// A mount namespace that lives as long as its first process.
pub struct Host {
    first: Child,
    _folder: tempfile::TempDir,
}

impl Host {
    /// None where this needs rights or tools that are missing.
    pub fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let first = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", SETUP, "host"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut host = Self { first, _folder: folder };
        let mut line = String::new();
        BufReader::new(host.first.stdout.take()?).read_line(&mut line).ok()?;
        (line == "ready\n").then_some(host)
    }

    fn inside(&self, command: &str) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--mount=/proc/{}/ns/mnt", self.first.id())).arg(command);
        inside
    }

    /// Gives a script to a shell, as an operator does by pasting or over SSH: not as an argument.
    pub fn run(&self, script: &str) -> Output {
        self.give("sh", &[], script)
    }

    /// Hands a bootstrap file to the installed agent.
    pub fn install(&self, bootstrap: &str) {
        let given = self.give("/usr/local/bin/lattice-agent", &["install", "--from-stdin"], bootstrap);
        assert!(given.status.success(), "{given:?}");
    }

    /// Writes a file.
    pub fn write(&self, path: &str, content: &str) {
        assert!(self.give("tee", &[path], content).status.success());
    }

    fn give(&self, command: &str, words: &[&str], input: &str) -> Output {
        let mut child = self
            .inside(command)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// The agent as `lattice-agent install` says to start it.
    pub fn agent(&self) -> Agent {
        let mut command = tokio::process::Command::from(self.inside("/usr/local/bin/lattice-agent"));
        command.args(["run", "--bootstrap", "/etc/lattice/bootstrap.json"]);
        Agent(command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It ends with its input, too.
        let _ = self.first.kill();
        let _ = self.first.wait();
    }
}

/// The agent's process.
pub struct Agent(tokio::process::Child);

impl Agent {
    /// As if it crashed.
    pub async fn kill(&mut self) {
        self.0.kill().await.unwrap();
    }

    /// As systemd stops it; it must end well.
    pub async fn terminate(&mut self) {
        let pid = self.0.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = tokio::time::timeout(PATIENCE, self.0.wait()).await.expect("it ends").unwrap();
        assert_eq!(status.code(), Some(0));
    }

    /// Waits until it says that it registered. A well node's row does not tell: nothing about it is new.
    pub async fn registered(&mut self) {
        let stderr = self.0.stderr.as_mut().unwrap();
        let said = async {
            let mut said = Vec::new();
            while !String::from_utf8_lossy(&said).contains("registered") {
                assert!(stderr.read_buf(&mut said).await.unwrap() > 0, "{}", String::from_utf8_lossy(&said));
            }
        };
        tokio::time::timeout(PATIENCE, said).await.expect("it registers");
    }

    /// Waits until it ends by itself: its exit code and what it said since.
    pub async fn ended(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().unwrap();
        let read = async {
            stderr.read_to_string(&mut said).await.unwrap();
            self.0.wait().await.unwrap().code()
        };
        let code = tokio::time::timeout(PATIENCE, read).await.expect("it ends by itself");
        (code, said)
    }
}
