//! Signs, sends, reads the verdict, and repeats only where that is safe.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use lattice_core::secret::Secret;
use lattice_core::time::Clock;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::call::{Call, Lane};
use super::oauth::Signer;
use super::transport::{MaasRequest, MaasResponse, MaasTransport};
use super::verdict::{self, Effect, Verdict};
use crate::error::{ErrorKind, ProviderError};

/// What a client is given once.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// Beginning of every nonce; must be unique to this client (random, 16 characters or more).
    pub nonce_prefix: String,
    /// How calls are repeated.
    pub retry: RetryPolicy,
}

/// How a call is repeated inside the client. Longer waits are the job's, which can show them.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// Most tries of one call, the first included.
    pub tries: u32,
    /// Pause before the second try; it is four times as long before each further one.
    pub first_pause: Duration,
}

impl Default for RetryPolicy {
    /// Three tries within about a second: enough for a proxy that restarts a worker, short enough to stay unseen.
    fn default() -> Self {
        Self { tries: 3, first_pause: Duration::from_millis(200) }
    }
}

/// How often an endpoint was called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCount {
    /// Calls made, each counted once.
    pub calls: u64,
    /// Tries beyond the first.
    pub retries: u64,
    /// Calls that ended in an error.
    pub failures: u64,
}

/// A client of one MAAS region. Its operations are in the modules beside: one file per part of the API.
pub struct MaasClient {
    transport: Arc<dyn MaasTransport>,
    clock: Arc<dyn Clock>,
    signer: Signer,
    retry: RetryPolicy,
    counts: Mutex<BTreeMap<&'static str, CallCount>>,
    ordinary: Semaphore,
    power: Semaphore,
}

/// What follows a failed try.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Repeat,
    GiveUp(ErrorKind),
}

impl MaasClient {
    /// Calls of each lane at once. A region runs a few worker processes; more would only queue there, out of sight.
    const AT_ONCE: usize = 16;
    /// Bodies beyond this many bytes are parsed on a thread of their own: a listing of 10,000 machines takes a second.
    const PARSED_INLINE: usize = 1 << 20;

    /// A client that acts with the API key `key` (`consumer:token:secret`).
    ///
    /// # Errors
    /// The key is not of that form.
    pub fn new(
        key: &Secret<String>,
        settings: ClientSettings,
        transport: Arc<dyn MaasTransport>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ProviderError> {
        let signer = Signer::new(key, settings.nonce_prefix)
            .map_err(|error| ProviderError::unusable("maas credentials", error))?;
        Ok(Self {
            transport,
            clock,
            signer,
            retry: settings.retry,
            counts: Mutex::default(),
            ordinary: Semaphore::new(Self::AT_ONCE),
            power: Semaphore::new(Self::AT_ONCE),
        })
    }

    /// Calls made so far, by endpoint.
    pub fn counts(&self) -> BTreeMap<&'static str, CallCount> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The clock that was given: the time of what is observed through this client.
    pub fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// Makes a call whose answer is JSON.
    pub(super) async fn json<T: DeserializeOwned + Send + 'static>(&self, call: Call) -> Result<T, ProviderError> {
        let name = call.name();
        let body = self.bytes(call).await?;
        let parsed = if body.len() <= Self::PARSED_INLINE {
            serde_json::from_slice(&body)
        } else {
            let parsing = tokio::task::spawn_blocking(move || serde_json::from_slice(&body));
            parsing.await.expect("parsing neither panics nor is cancelled")
        };
        // Only the place is reported: the parser's own words would quote values, and some are secret.
        parsed.map_err(|error| {
            let place = format!("its JSON does not fit at line {} column {}", error.line(), error.column());
            ProviderError::malformed(format!("maas {name}"), place)
        })
    }

    /// Makes a call whose answer does not matter.
    pub(super) async fn done(&self, call: Call) -> Result<(), ProviderError> {
        self.bytes(call).await.map(drop)
    }

    /// Makes a call.
    pub(super) async fn bytes(&self, call: Call) -> Result<Bytes, ProviderError> {
        let (mut request, effect, lane) = call.into_request();
        let lane = match lane {
            Lane::Ordinary => &self.ordinary,
            Lane::Power => &self.power,
        };
        let _place = lane.acquire().await.expect("the lanes are never closed");
        let (outcome, tries) = self.repeated(&mut request, effect).await;
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(request.call).or_default();
        count.calls += 1;
        count.retries += u64::from(tries - 1);
        count.failures += u64::from(outcome.is_err());
        drop(counts);
        outcome.map_err(|kind| ProviderError::new(format!("maas {}", request.call), kind))
    }

    async fn repeated(&self, request: &mut MaasRequest, effect: Effect) -> (Result<Bytes, ErrorKind>, u32) {
        let mut pause = self.retry.first_pause;
        let mut tries = 1;
        loop {
            request.headers.insert(AUTHORIZATION, self.signer.sign(self.clock.now()));
            let answer = self.transport.send(request).await.map_err(|error| error.kind);
            let next = match self.read(request, effect, answer) {
                Ok(body) => return (Ok(body), tries),
                Err(next) => next,
            };
            match next {
                Next::Repeat if tries < self.retry.tries => {
                    tokio::time::sleep(pause).await;
                    pause *= 4;
                    tries += 1;
                }
                Next::Repeat => {
                    let message = "its nonces are refused again and again; another client may use the same prefix";
                    return (Err(ErrorKind::Unauthorised { message: message.to_owned() }), tries);
                }
                Next::GiveUp(kind) if tries < self.retry.tries && may_repeat(&kind, effect) => {
                    tokio::time::sleep(pause).await;
                    pause *= 4;
                    tries += 1;
                }
                Next::GiveUp(kind) => return (Err(kind), tries),
            }
        }
    }

    fn read(
        &self,
        request: &MaasRequest,
        effect: Effect,
        answer: Result<MaasResponse, ErrorKind>,
    ) -> Result<Bytes, Next> {
        let response = match answer {
            Ok(response) => response,
            Err(ErrorKind::Timeout { limit }) if effect == Effect::Changes => {
                let detail = format!("no answer within {} ms", limit.as_millis());
                return Err(Next::GiveUp(ErrorKind::Ambiguous { detail }));
            }
            Err(kind) => return Err(Next::GiveUp(kind)),
        };
        let secrets: Vec<&str> =
            request.form.secrets().chain(request.query.secrets()).chain(self.signer.secrets()).collect();
        match verdict::of(&response, effect, &secrets) {
            Verdict::Done => Ok(response.body),
            Verdict::SignAgain => Err(Next::Repeat),
            Verdict::Failed(kind) => Err(Next::GiveUp(kind)),
        }
    }
}

/// Whether a failed try may be followed by another at once. What was certainly not sent may always be sent again.
fn may_repeat(kind: &ErrorKind, effect: Effect) -> bool {
    match kind {
        ErrorKind::Unreachable { .. } => true,
        ErrorKind::Timeout { .. } | ErrorKind::Ambiguous { .. } => effect == Effect::Reads,
        ErrorKind::ServerFailed { status, .. } => effect == Effect::Reads && matches!(status, 502 | 504),
        ErrorKind::Unauthorised { .. }
        | ErrorKind::Forbidden { .. }
        | ErrorKind::NotFound { .. }
        | ErrorKind::Refused { .. }
        | ErrorKind::RetryLater { .. }
        | ErrorKind::PowerFailed { .. }
        | ErrorKind::Malformed { .. }
        | ErrorKind::BadCertificate { .. }
        | ErrorKind::SeveralMatch { .. }
        | ErrorKind::NoCredential { .. }
        | ErrorKind::NotOffered { .. }
        | ErrorKind::LockedOut { .. }
        | ErrorKind::Unusable { .. } => false,
    }
}
