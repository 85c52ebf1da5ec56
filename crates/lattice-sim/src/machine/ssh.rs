//! The SSH server of an installed system: fixed forms of commands, no shell.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use russh::keys::PublicKey;
use russh::server::{Auth, ChannelOpenHandle, Config, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, Disconnect, MethodKind, MethodSet};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::command;
use super::runner::Machine;
use crate::stop::Stop;

/// Largest standard input of a command: credentials are under a kilobyte.
const MAX_INPUT_BYTES: usize = 1024 * 1024;
/// What a refused login costs the client.
const REJECTION: Duration = Duration::from_millis(20);

/// Serves SSH for a machine until stopped; open sessions are cut then, as a loss of power would.
pub(super) fn serve(listener: TcpListener, machine: Arc<Machine>) -> Stop {
    let config = Arc::new(Config {
        methods: MethodSet::from([MethodKind::PublicKey, MethodKind::Password].as_slice()),
        auth_rejection_time: REJECTION,
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![machine.host_key()],
        inactivity_timeout: Some(Duration::from_secs(60)),
        nodelay: true,
        ..Config::default()
    });
    let token = CancellationToken::new();
    let stopped = token.clone();
    let task = tokio::spawn(async move {
        let mut sessions = JoinSet::new();
        loop {
            tokio::select! {
                () = stopped.cancelled() => break,
                Some(_) = sessions.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        sessions.spawn(serve_session(stream, config.clone(), machine.clone(), stopped.clone()));
                    }
                    Err(error) => tracing::warn!(%error, "accepting an SSH connection failed"),
                },
            }
        }
        while sessions.join_next().await.is_some() {}
    });
    Stop::new(token, task)
}

async fn serve_session(stream: TcpStream, config: Arc<Config>, machine: Arc<Machine>, stopped: CancellationToken) {
    let handler = Guest { machine, user: String::new(), waiting: HashMap::new() };
    // Errors of a session are the client's: it hung up or spoke nonsense.
    let Ok(session) = russh::server::run_stream(config, stream, handler).await else { return };
    let handle = session.handle();
    tokio::select! {
        _ended = session => {}
        () = stopped.cancelled() => {
            let _gone = handle.disconnect(Disconnect::ByApplication, "power off".into(), String::new()).await;
        }
    }
}

/// One client of the SSH server.
struct Guest {
    machine: Arc<Machine>,
    user: String,
    /// Commands that wait for the end of their standard input.
    waiting: HashMap<ChannelId, (command::Command, Vec<u8>)>,
}

impl Guest {
    async fn finish(
        &mut self,
        channel: ChannelId,
        command: command::Command,
        input: Vec<u8>,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let outcome = self.machine.run(command, input).await;
        if !outcome.output.is_empty() {
            session.data(channel, outcome.output)?;
        }
        end(channel, outcome.status, session)
    }

    fn verdict(accepted: bool) -> Auth {
        if accepted { Auth::Accept } else { Auth::reject() }
    }
}

fn end(channel: ChannelId, status: u32, session: &mut Session) -> Result<(), russh::Error> {
    session.exit_status_request(channel, status)?;
    session.eof(channel)?;
    session.close(channel)
}

impl Handler for Guest {
    type Error = russh::Error;

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        self.user = user.to_owned();
        Ok(Self::verdict(self.machine.accepts_password(user, password)))
    }

    async fn auth_publickey_offered(&mut self, user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, Self::Error> {
        Ok(Self::verdict(self.machine.accepts_key(user, offer.public_key)))
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        self.user = user.to_owned();
        let key: &PublicKey = key.public_key;
        Ok(Self::verdict(self.machine.accepts_key(user, key)))
    }

    async fn channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_success(channel)?;
        let line = String::from_utf8_lossy(data).into_owned();
        match command::parse(&line) {
            Some(install @ command::Command::Install { .. }) => {
                self.waiting.insert(channel, (install, Vec::new()));
                Ok(())
            }
            Some(command) => self.finish(channel, command, Vec::new(), session).await,
            None => {
                self.machine.refuse(&line);
                session.data(channel, format!("{line}: command not found\n").into_bytes())?;
                end(channel, 127, session)
            }
        }
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], session: &mut Session) -> Result<(), Self::Error> {
        let Some((_, input)) = self.waiting.get_mut(&channel) else { return Ok(()) };
        if input.len() + data.len() > MAX_INPUT_BYTES {
            self.waiting.remove(&channel);
            return end(channel, 1, session);
        }
        input.extend_from_slice(data);
        Ok(())
    }

    async fn channel_eof(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        match self.waiting.remove(&channel) {
            Some((command, input)) => self.finish(channel, command, input, session).await,
            None => Ok(()),
        }
    }
}
