//! The SSH client against a host in this process.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::secret::Secret;
use lattice_providers::error::{ErrorKind, ProviderError};
use lattice_providers::provider::CommandOutput;
use lattice_providers::ssh::{ExecLimits, HostKey, SshCredential, SshSession, SshTarget};
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{PrivateKey, PublicKey};
use russh::server::{self, Auth, ChannelOpenHandle, Msg, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId};
use tokio::net::TcpListener;

const HOST: u8 = 1;
const USER: u8 = 2;
const OTHER: u8 = 3;

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32]))
}

/// A host with one user, one password, one key, and a few commands.
#[derive(Default)]
struct Host {
    command: String,
}

impl Host {
    fn end(session: &mut Session, channel: ChannelId, code: u32) -> Result<(), russh::Error> {
        session.exit_status_request(channel, code)?;
        session.eof(channel)?;
        session.close(channel)
    }
}

impl server::Handler for Host {
    type Error = russh::Error;

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, russh::Error> {
        Ok(if (user, password) == ("hpcadmin", "hunter22") { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_publickey(&mut self, user: &str, offered: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        let known: PublicKey = key(USER).public_key().clone();
        Ok(if user == "hpcadmin" && offered.public_key.key_data() == known.key_data() {
            Auth::Accept
        } else {
            Auth::reject()
        })
    }

    async fn channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        line: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        self.command = String::from_utf8_lossy(line).into_owned();
        if self.command == "'forbidden'" {
            return session.channel_failure(channel);
        }
        session.channel_success(channel)?;
        match self.command.as_str() {
            "'fail' 'a b'" => {
                session.data(channel, "out\n".to_owned())?;
                session.extended_data(channel, 1, "err\n".to_owned())?;
                Self::end(session, channel, 7)
            }
            "'long'" => {
                session.data(channel, vec![b'x'; 30_000])?;
                Self::end(session, channel, 0)
            }
            "'vanish'" => session.close(channel),
            _ => Ok(()),
        }
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        if self.command == "'cat'" { session.data(channel, data.to_vec()) } else { Ok(()) }
    }

    async fn channel_eof(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        if self.command == "'cat'" { Self::end(session, channel, 0) } else { Ok(()) }
    }
}

async fn host() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let config = Arc::new(server::Config {
        keys: vec![key(HOST)],
        auth_rejection_time: Duration::ZERO,
        ..server::Config::default()
    });
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let config = Arc::clone(&config);
            tokio::spawn(async move {
                if let Ok(session) = server::run_stream(config, socket, Host::default()).await {
                    let _ = session.await;
                }
            });
        }
    });
    address
}

fn target(address: SocketAddr, host_key: u8) -> SshTarget {
    let text = key(host_key).public_key().to_openssh().unwrap();
    SshTarget { address, host_key: HostKey::from_openssh(&text).unwrap(), user: "hpcadmin".to_owned() }
}

fn password(text: &str) -> SshCredential {
    SshCredential::Password(Secret::new(text.to_owned()))
}

fn private(seed: u8) -> SshCredential {
    SshCredential::PrivateKey(Secret::new(key(seed).to_openssh(LineEnding::LF).unwrap().to_string()))
}

const WITHIN: Duration = Duration::from_secs(10);

async fn connected() -> SshSession {
    SshSession::connect(&target(host().await, HOST), &password("hunter22"), WITHIN).await.unwrap()
}

async fn exec(session: &SshSession, command: &[&str], limits: ExecLimits) -> Result<CommandOutput, ProviderError> {
    session.exec(command, &Secret::new(Vec::new()), limits).await
}

async fn refusal(target: &SshTarget, credential: &SshCredential) -> ErrorKind {
    SshSession::connect(target, credential, WITHIN).await.err().expect("a refusal").kind
}

#[tokio::test]
async fn a_command_gives_its_code_and_both_outputs() {
    let session = connected().await;
    let output = exec(&session, &["fail", "a b"], ExecLimits::default()).await.unwrap();
    assert_eq!(
        (output.code, output.stdout.as_slice(), output.stderr.as_slice()),
        (Some(7), b"out\n".as_slice(), b"err\n".as_slice())
    );
    session.close().await;
}

#[tokio::test]
async fn a_command_reads_its_input_to_the_end() {
    let session = connected().await;
    let input = vec![b'i'; 50_000];
    let output = session.exec(&["cat"], &Secret::new(input.clone()), ExecLimits::default()).await.unwrap();
    assert_eq!((output.code, output.stdout == input), (Some(0), true));
}

#[tokio::test]
async fn output_beyond_its_bound_is_dropped() {
    let limits = ExecLimits { output_bytes: 100, ..ExecLimits::default() };
    let output = exec(&connected().await, &["long"], limits).await.unwrap();
    assert_eq!((output.stdout.len(), output.truncated, output.code), (100, true, Some(0)));
}

#[tokio::test]
async fn a_command_that_does_not_end_or_says_nothing_is_ambiguous() {
    let session = connected().await;
    let limits = ExecLimits { within: Duration::from_millis(50), ..ExecLimits::default() };
    assert!(exec(&session, &["hang"], limits).await.unwrap_err().is_ambiguous());
    assert!(exec(&session, &["vanish"], ExecLimits::default()).await.unwrap_err().is_ambiguous());
    let refused = exec(&session, &["forbidden"], ExecLimits::default()).await.unwrap_err();
    assert!(matches!(refused.kind, ErrorKind::Refused { .. }), "{refused}");
}

#[tokio::test]
async fn a_private_key_logs_in() {
    let address = host().await;
    assert!(SshSession::connect(&target(address, HOST), &private(USER), WITHIN).await.is_ok());
    assert!(matches!(refusal(&target(address, HOST), &private(OTHER)).await, ErrorKind::Unauthorised { .. }));
    let none = SshCredential::PrivateKey(Secret::new("no key".to_owned()));
    assert!(matches!(refusal(&target(address, HOST), &none).await, ErrorKind::Unusable { .. }));
}

#[tokio::test]
async fn another_host_key_is_refused_before_the_password_is_sent() {
    let address = host().await;
    assert!(matches!(refusal(&target(address, OTHER), &password("hunter22")).await, ErrorKind::BadCertificate { .. }));
    let ecdsa = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBHwf2HMM5TRXvo2SQJjsNkiDD5KqiiNjrGVv3UUh+mMT5RHxiRtOnlqvjhQtBq0VpmpCV/PwUdhOig4vkbqAcEc=";
    let target = SshTarget { host_key: HostKey::from_openssh(ecdsa).unwrap(), ..target(address, HOST) };
    assert!(matches!(refusal(&target, &password("hunter22")).await, ErrorKind::BadCertificate { .. }));
}

#[tokio::test]
async fn a_wrong_password_and_a_dead_host_are_told_apart() {
    let address = host().await;
    assert!(matches!(refusal(&target(address, HOST), &password("wrong")).await, ErrorKind::Unauthorised { .. }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mute = listener.local_addr().unwrap();
    let silent = SshSession::connect(&target(mute, HOST), &password("x"), Duration::from_millis(50)).await;
    assert!(matches!(silent.err().unwrap().kind, ErrorKind::Unreachable { .. }));
    let dead = "127.0.0.1:1".parse().unwrap();
    assert!(matches!(refusal(&target(dead, HOST), &password("x")).await, ErrorKind::Unreachable { .. }));
}

/// A real OpenSSH server in a directory of its own, killed when dropped.
struct Sshd {
    process: std::process::Child,
    _directory: tempfile::TempDir,
    target: SshTarget,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Sshd {
    /// Starts the server that `LATTICE_TEST_SSHD` names (`/usr/sbin/sshd`; as root it wants `/run/sshd` to be there);
    /// the user who runs the test may log in with its key.
    async fn given() -> Option<Self> {
        let Some(program) = std::env::var_os("LATTICE_TEST_SSHD") else {
            eprintln!("skipped: LATTICE_TEST_SSHD names no sshd");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let write = |name: &str, text: &str| {
            use std::io::Write;
            use std::os::unix::fs::OpenOptionsExt;
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(at(name)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        write("host", &key(HOST).to_openssh(LineEnding::LF).unwrap());
        write("keys", &key(USER).public_key().to_openssh().unwrap());
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n",
            at("host").display(),
            at("keys").display(),
        );
        write("config", &config);
        let mut process = std::process::Command::new(program)
            .args(["-D", "-e", "-f"])
            .arg(at("config"))
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        let mut said = String::new();
        let listens = log.lines().map_while(Result::ok).any(|line| {
            said += &line;
            line.starts_with("Server listening on")
        });
        assert!(listens, "sshd does not start: {said}");
        let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
        let target = SshTarget { user, ..target(([127, 0, 0, 1], port).into(), HOST) };
        Some(Self { process, _directory: directory, target })
    }

    async fn session(&self) -> SshSession {
        SshSession::connect(&self.target, &private(USER), WITHIN).await.unwrap()
    }
}

#[tokio::test]
async fn openssh_runs_what_we_mean() {
    let Some(sshd) = Sshd::given().await else { return };
    let session = sshd.session().await;
    let output = exec(&session, &["printf", "%s|", "a b", "$(id)", "it's", ""], ExecLimits::default()).await.unwrap();
    assert_eq!((output.code, output.stdout.as_slice()), (Some(0), b"a b|$(id)|it's||".as_slice()));
    let input = vec![b'i'; 300_000];
    let output = session.exec(&["wc", "-c"], &Secret::new(input), ExecLimits::default()).await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "300000");
    let output = exec(&session, &["sh", "-c", "echo err >&2; exit 3"], ExecLimits::default()).await.unwrap();
    assert_eq!((output.code, output.stderr.as_slice()), (Some(3), b"err\n".as_slice()));
    let output = exec(&session, &["sh", "-c", "kill -9 $$"], ExecLimits::default()).await.unwrap();
    assert_eq!(output.code, None);
    let limits = ExecLimits { within: Duration::from_millis(100), ..ExecLimits::default() };
    assert!(exec(&session, &["sleep", "5"], limits).await.unwrap_err().is_ambiguous());
    session.close().await;
    let wrong = SshTarget { host_key: target(sshd.target.address, OTHER).host_key, ..sshd.target.clone() };
    assert!(matches!(refusal(&wrong, &private(USER)).await, ErrorKind::BadCertificate { .. }));
    assert!(matches!(refusal(&sshd.target, &private(OTHER)).await, ErrorKind::Unauthorised { .. }));
}

#[test]
fn a_host_key_in_another_form_is_refused() {
    assert!(HostKey::from_openssh("not a key").is_err());
}
