//! Running ipmitool: the password in its environment alone, its words bounded, its life too.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::bmc::CipherSuite;
use lattice_core::time::{Clock, Timestamp};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::error::{ErrorKind, ProviderError};
use crate::machine::bmc::BmcLogin;
use crate::message;

/// Where a BMC is.
#[derive(Debug, Clone)]
pub struct IpmiSettings {
    /// Its address and port.
    pub address: SocketAddr,
    /// Cipher suite of its sessions.
    pub cipher: CipherSuite,
    /// The program; found on the path unless it is absolute.
    pub program: String,
    /// Longest call; a session with its retries takes 12 s at most, a long event log some seconds more.
    pub limit: Duration,
}

impl IpmiSettings {
    /// With the program of the operating system, and 30 s for each call.
    pub fn new(address: SocketAddr, cipher: CipherSuite) -> Self {
        Self { address, cipher, program: "ipmitool".to_owned(), limit: Duration::from_secs(30) }
    }
}

/// A client of one BMC.
pub struct IpmiClient {
    settings: IpmiSettings,
    login: BmcLogin,
    source: String,
    clock: Arc<dyn Clock>,
}

/// Whether a command changes something at the BMC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    Changes,
}

struct Ended {
    success: bool,
    stdout: String,
    stderr: String,
}

impl IpmiClient {
    /// Largest output, in bytes: an event log of some thousand entries.
    const LARGEST: u64 = 1 << 20;

    /// A client of the BMC.
    pub fn new(settings: IpmiSettings, login: BmcLogin, clock: Arc<dyn Clock>) -> Self {
        let source = format!("ipmi {}", settings.address.ip());
        Self { settings, login, source, clock }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// Runs a command and returns what it printed. With -v, without which a refused login and a silent BMC read the
    /// same.
    pub(super) async fn run(
        &self,
        call: &'static str,
        effect: Effect,
        arguments: &[&str],
    ) -> Result<String, ProviderError> {
        let told: Vec<_> = ["-v"].iter().chain(arguments).copied().collect();
        self.listing(call, effect, &told).await
    }

    /// Runs a command whose form changes with -v: after one that proved the login.
    pub(super) async fn listing(
        &self,
        call: &'static str,
        effect: Effect,
        arguments: &[&str],
    ) -> Result<String, ProviderError> {
        let limit = self.settings.limit;
        let error = |kind| ProviderError::new(format!("ipmi {call}"), kind);
        let ended = match tokio::time::timeout(limit, self.spawn(arguments)).await {
            Ok(ended) => ended.map_err(error)?,
            // The child is killed as its handle is dropped.
            Err(_) => return Err(error(silent(effect, limit))),
        };
        if ended.success {
            return Ok(ended.stdout);
        }
        let words = message::without_secrets(told(&ended.stderr), &[self.login.password.expose()]);
        Err(error(judged(&words, effect)))
    }

    async fn spawn(&self, arguments: &[&str]) -> Result<Ended, ErrorKind> {
        let IpmiSettings { address, cipher, program, limit: _ } = &self.settings;
        let mut child = Command::new(program)
            .args(["-I", "lanplus", "-N", "2", "-R", "1", "-E"])
            .args(["-H", &address.ip().to_string(), "-p", &address.port().to_string()])
            .args(["-C", &u8::from(*cipher).to_string(), "-U", &self.login.user])
            .args(arguments)
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("LC_ALL", "C")
            .env("IPMI_PASSWORD", self.login.password.expose())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| ErrorKind::Unusable {
                what: format!("{program} cannot be run ({error}): install ipmitool"),
            })?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (stdout, stderr, status) = tokio::join!(text(out), text(err), child.wait());
        let broken = |error: std::io::Error| ErrorKind::Ambiguous { detail: error.to_string() };
        Ok(Ended {
            success: status.map_err(broken)?.success(),
            stdout: stdout.map_err(broken)?,
            stderr: stderr.map_err(broken)?,
        })
    }
}

async fn text(pipe: Option<impl AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let mut limited = pipe.take(IpmiClient::LARGEST);
        limited.read_to_end(&mut bytes).await?;
        // What is beyond the limit is read and dropped, so that the child ends.
        tokio::io::copy(&mut limited.into_inner(), &mut tokio::io::sink()).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn silent(effect: Effect, limit: Duration) -> ErrorKind {
    match effect {
        Effect::Reads => ErrorKind::Timeout { limit },
        Effect::Changes => {
            ErrorKind::Ambiguous { detail: format!("ipmitool did not end within {} ms", limit.as_millis()) }
        }
    }
}

/// What a failed run means: the tool's exit status is 1 for everything, so its words are read.
fn judged(stderr: &str, effect: Effect) -> ErrorKind {
    let has = |text: &str| stderr.contains(text);
    let words = || message::bounded(stderr);
    if has("RAKP 2 HMAC is invalid") {
        return ErrorKind::Unauthorised { message: "the BMC proved another password than ours".to_owned() };
    }
    if has("unauthorized name") || has("Invalid user name") {
        return ErrorKind::Unauthorised { message: "the BMC does not know the user".to_owned() };
    }
    if has("RAKP 4") && has("invalid") || has("unauthorized role") || has("insufficient privilege") {
        return ErrorKind::Forbidden { message: words() };
    }
    if has("no response from RAKP") {
        // It answered the request for a session, and none of the logins: BMCs drop users they do not know.
        return ErrorKind::Unauthorised { message: "the BMC opened a session and did not answer the login".to_owned() };
    }
    if has("invalid authentication algorithm") || has("no matching cipher suite") || has("invalid integrity algorithm")
    {
        return ErrorKind::NotOffered { what: "the BMC does not have this cipher suite: set the other one".to_owned() };
    }
    if has("Unable to establish") {
        return ErrorKind::Unreachable { detail: "no answer to a request for a session".to_owned() };
    }
    if has("Invalid command") || has("Command not supported") || has("Requested sensor, data, or record not found") {
        return ErrorKind::NotOffered { what: words() };
    }
    if has("Node busy") || has("Timeout") && effect == Effect::Reads {
        return ErrorKind::RetryLater { after: Duration::from_secs(10) };
    }
    if has("Insufficient privilege") {
        return ErrorKind::Forbidden { message: words() };
    }
    match effect {
        Effect::Reads => ErrorKind::ServerFailed { status: 0, message: words() },
        Effect::Changes => ErrorKind::PowerFailed { message: words() },
    }
}

/// Without the lines that the tool always prints with -v.
fn told(stderr: &str) -> String {
    let noise = ["Loading IANA", "Running Get", "Discovered IPMB", "Invalid completion code received"];
    let lines = stderr.lines().filter(|line| !noise.iter().any(|start| line.starts_with(start)));
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Remedy;

    #[track_caller]
    fn check(stderr: &str, effect: Effect, want: &str, remedy: Remedy) {
        let error = ProviderError::new("ipmi power", judged(&told(stderr), effect));
        assert_eq!((error.kind.to_string().as_str(), error.remedy()), (want, remedy));
    }

    #[test]
    fn the_tool_s_words_become_kinds_with_their_remedy() {
        use Effect::{Changes, Reads};
        let no_session = "Error: Unable to establish IPMI v2 / RMCP+ session";
        check(
            &format!("Loading IANA PEN Registry...\n> RAKP 2 HMAC is invalid\n{no_session}"),
            Reads,
            "the credential was refused: the BMC proved another password than ours",
            Remedy::Stop,
        );
        check(
            &format!("RAKP 2 message indicates an error : unauthorized name\n{no_session}"),
            Reads,
            "the credential was refused: the BMC does not know the user",
            Remedy::Stop,
        );
        check(
            &format!("> Error: no response from RAKP 1 message\n{no_session}"),
            Reads,
            "the credential was refused: the BMC opened a session and did not answer the login",
            Remedy::Stop,
        );
        check(
            &format!("Error in open session response message : no matching cipher suite\n\n{no_session}"),
            Reads,
            "not offered: the BMC does not have this cipher suite: set the other one",
            Remedy::Stop,
        );
        check(no_session, Changes, "cannot be reached: no answer to a request for a session", Remedy::Repeat);
        check(
            "Get SDR Repository Info command failed: Invalid command",
            Reads,
            "not offered: Get SDR Repository Info command failed: Invalid command",
            Remedy::Stop,
        );
        check(
            "Invalid completion code received: Invalid command\nSet Chassis Power Control to Up/On failed: Unspecified error",
            Changes,
            "power control failed: Set Chassis Power Control to Up/On failed: Unspecified error",
            Remedy::ReadFirst,
        );
    }
}
