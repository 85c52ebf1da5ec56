//! SSH to a deployed host whose key is known beforehand: cloud-init installs one per deployment, and it is pinned.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::secret::Secret;
use russh::client::{self, Handle, Handler};
use russh::keys::{Algorithm, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{ChannelMsg, Disconnect, Preferred};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::{ErrorKind, ProviderError};
use crate::message;
use crate::provider::CommandOutput;

/// A host's public key, the only one that is accepted from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKey(PublicKey);

impl HostKey {
    /// Reads `ssh-ed25519 AAAA… comment`.
    ///
    /// # Errors
    /// The text is not a public key in OpenSSH's form.
    pub fn from_openssh(text: &str) -> Result<Self, ProviderError> {
        PublicKey::from_openssh(text.trim())
            .map(Self)
            .map_err(|_| ProviderError::unusable("ssh connect", "the host key is not in OpenSSH's form"))
    }

    /// The signatures that the host may offer: those of this key alone, or a host with several keys shows another one.
    fn algorithms(&self) -> Vec<Algorithm> {
        match self.0.algorithm() {
            Algorithm::Rsa { .. } => {
                [HashAlg::Sha512, HashAlg::Sha256].map(|hash| Algorithm::Rsa { hash: Some(hash) }).to_vec()
            }
            other => vec![other],
        }
    }
}

/// Where to connect, and whom to expect there.
#[derive(Debug, Clone)]
pub struct SshTarget {
    /// Address and port.
    pub address: SocketAddr,
    /// The host's key.
    pub host_key: HostKey,
    /// User to log in as.
    pub user: String,
}

/// How to log in.
pub enum SshCredential {
    /// With a password.
    Password(Secret<String>),
    /// With a private key in OpenSSH's form, without a passphrase.
    PrivateKey(Secret<String>),
}

/// Bounds of one command.
#[derive(Debug, Clone, Copy)]
pub struct ExecLimits {
    /// Longest run.
    pub within: Duration,
    /// Bytes kept of each output; the rest is read and dropped.
    pub output_bytes: usize,
}

impl Default for ExecLimits {
    /// A minute, and 64 KiB: enough for a unit's status and the end of a journal.
    fn default() -> Self {
        Self { within: Duration::from_secs(60), output_bytes: 64 << 10 }
    }
}

/// An authenticated connection.
pub struct SshSession {
    handle: Handle<Pinned>,
}

struct Pinned(PublicKey);

impl Handler for Pinned {
    type Error = russh::Error;
    async fn check_server_key(&mut self, offered: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        Ok(match offered {
            PublicKeyOrCertificate::PublicKey { key, .. } => key.key_data() == self.0.key_data(),
            PublicKeyOrCertificate::Certificate(_) => false,
        })
    }
}

impl SshSession {
    /// Connects, compares the host's key, logs in; all of it within `within`.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] when nobody answers, [`ErrorKind::BadCertificate`] when the host shows another key,
    /// [`ErrorKind::Unauthorised`] when the login is refused, [`ErrorKind::Unusable`] when the private key is none.
    pub async fn connect(
        target: &SshTarget,
        credential: &SshCredential,
        within: Duration,
    ) -> Result<Self, ProviderError> {
        let key = match credential {
            SshCredential::Password(_) => None,
            SshCredential::PrivateKey(text) => Some(read_private_key(text)?),
        };
        let attempt = async {
            let mut handle = open(target).await?;
            log_in(&mut handle, &target.user, credential, key).await?;
            Ok(Self { handle })
        };
        let late = |_| Err(ErrorKind::Unreachable { detail: format!("no login within {} ms", within.as_millis()) });
        timeout(within, attempt).await.unwrap_or_else(late).map_err(|kind| ProviderError::new("ssh connect", kind))
    }

    /// Runs a program with arguments, gives it `stdin`, and waits for its end.
    ///
    /// SSH hands one line to the login shell; every argument is quoted, so that none is interpreted.
    ///
    /// # Errors
    /// [`ErrorKind::Ambiguous`] when it did not end in time or the connection broke: it may have run.
    pub async fn exec(
        &self,
        command: &[&str],
        stdin: &Secret<Vec<u8>>,
        limits: ExecLimits,
    ) -> Result<CommandOutput, ProviderError> {
        let deadline = Instant::now() + limits.within;
        let late = |_| {
            let detail = format!("the command did not end within {} ms", limits.within.as_millis());
            Err(ErrorKind::Ambiguous { detail })
        };
        timeout_at(deadline, self.run(&line(command), stdin, limits.output_bytes))
            .await
            .unwrap_or_else(late)
            .map_err(|kind| ProviderError::new("ssh exec", kind))
    }

    /// Says goodbye; a connection that is dropped instead is closed as well.
    pub async fn close(self) {
        // The connection goes away in either case.
        let _ = self.handle.disconnect(Disconnect::ByApplication, "", "").await;
    }

    async fn run(&self, line: &str, stdin: &Secret<Vec<u8>>, keep: usize) -> Result<CommandOutput, ErrorKind> {
        let not_sent = |error: russh::Error| ErrorKind::Unreachable { detail: message::bounded(&error.to_string()) };
        let broken = |error: russh::Error| ErrorKind::Ambiguous { detail: message::bounded(&error.to_string()) };
        let mut channel = self.handle.channel_open_session().await.map_err(not_sent)?;
        channel.exec(true, line).await.map_err(not_sent)?;
        if !stdin.expose().is_empty() {
            channel.data(stdin.expose().as_slice()).await.map_err(broken)?;
        }
        channel.eof().await.map_err(broken)?;
        let mut output = CommandOutput { code: None, stdout: Vec::new(), stderr: Vec::new(), truncated: false };
        let mut ended = false;
        while let Some(part) = channel.wait().await {
            match part {
                ChannelMsg::Data { data } => keep_some(&mut output.stdout, &data, keep, &mut output.truncated),
                ChannelMsg::ExtendedData { data, ext: 1 } => {
                    keep_some(&mut output.stderr, &data, keep, &mut output.truncated);
                }
                ChannelMsg::ExitStatus { exit_status } => {
                    ended = true;
                    output.code = i32::try_from(exit_status).ok();
                }
                ChannelMsg::ExitSignal { .. } => ended = true,
                ChannelMsg::Failure => {
                    return Err(ErrorKind::Refused {
                        status: 0,
                        message: "the host runs no commands for this user".to_owned(),
                    });
                }
                // Window changes, the end of the streams and requests that are not ours: nothing to keep.
                _ => {}
            }
        }
        if ended {
            Ok(output)
        } else {
            Err(ErrorKind::Ambiguous { detail: "the connection broke before the command ended".to_owned() })
        }
    }
}

async fn open(target: &SshTarget) -> Result<Handle<Pinned>, ErrorKind> {
    let unreachable = |detail: String| ErrorKind::Unreachable { detail: message::bounded(&detail) };
    let socket = TcpStream::connect(target.address).await.map_err(|error| unreachable(error.to_string()))?;
    let config = client::Config {
        preferred: Preferred { key: Cow::Owned(target.host_key.algorithms()), ..Preferred::default() },
        nodelay: true,
        ..client::Config::default()
    };
    let pinned = Pinned(target.host_key.0.clone());
    client::connect_stream(Arc::new(config), socket, pinned).await.map_err(|error| match error {
        russh::Error::UnknownKey => {
            ErrorKind::BadCertificate { detail: "the host shows another key than the pinned one".to_owned() }
        }
        russh::Error::NoCommonAlgo { .. } => ErrorKind::BadCertificate {
            detail: "the host has no key of the pinned one's kind, or no common cipher".to_owned(),
        },
        other => unreachable(other.to_string()),
    })
}

async fn log_in(
    handle: &mut Handle<Pinned>,
    user: &str,
    credential: &SshCredential,
    key: Option<PrivateKey>,
) -> Result<(), ErrorKind> {
    let broken = |error: russh::Error| ErrorKind::Unreachable { detail: message::bounded(&error.to_string()) };
    let outcome = match (credential, key) {
        (SshCredential::Password(password), _) => {
            handle.authenticate_password(user, password.expose().clone()).await.map_err(broken)?
        }
        (SshCredential::PrivateKey(_), Some(key)) => {
            let hash = handle.best_supported_rsa_hash().await.map_err(broken)?.flatten();
            let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash);
            handle.authenticate_publickey(user, key).await.map_err(broken)?
        }
        (SshCredential::PrivateKey(_), None) => unreachable!("a private key was read before connecting"),
    };
    if outcome.success() {
        Ok(())
    } else {
        Err(ErrorKind::Unauthorised { message: format!("user {} may not log in with it", message::bounded(user)) })
    }
}

fn read_private_key(text: &Secret<String>) -> Result<PrivateKey, ProviderError> {
    russh::keys::decode_secret_key(text.expose(), None).map_err(|_| {
        ProviderError::unusable("ssh connect", "the private key is not one in OpenSSH's form without passphrase")
    })
}

fn keep_some(kept: &mut Vec<u8>, data: &[u8], most: usize, truncated: &mut bool) {
    let room = most.saturating_sub(kept.len());
    kept.extend_from_slice(&data[..data.len().min(room)]);
    *truncated |= data.len() > room;
}

/// One line in which a POSIX shell sees exactly these words.
fn line(command: &[&str]) -> String {
    let quoted: Vec<String> = command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_of_a_command_is_interpreted() {
        assert_eq!(line(&["echo", "a b", "$(id)", "it's", ""]), r"'echo' 'a b' '$(id)' 'it'\''s' ''");
    }

    #[test]
    fn output_is_kept_up_to_its_bound() {
        let (mut kept, mut truncated) = (Vec::new(), false);
        keep_some(&mut kept, b"abc", 4, &mut truncated);
        assert!(!truncated);
        keep_some(&mut kept, b"def", 4, &mut truncated);
        assert_eq!((kept.as_slice(), truncated), (b"abcd".as_slice(), true));
    }
}
