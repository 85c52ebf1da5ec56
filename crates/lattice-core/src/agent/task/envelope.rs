//! The signed envelope of a task: DSSE with ed25519. Pure: keys and times are arguments.
//!
//! Format: <https://github.com/secure-systems-lab/dsse>: the signature is over the payload's type and bytes, so that it
//! fits nothing else. design: 4 "Identity and transport"

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer, VerifyingKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{TaskErrorCode, TaskInput, TaskKind};
use crate::ids::{NodeId, TaskId};
use crate::secret::Secret;
use crate::time::Timestamp;

/// Type of the payload.
pub const PAYLOAD_TYPE: &str = "application/vnd.lattice.task.v1+json";

/// Largest payload that is looked at, in bytes.
const MAX_PAYLOAD_BYTES: usize = 64 * 1024;
/// Most signatures that are looked at: the present key's and the one before.
const MAX_SIGNATURES: usize = 4;
/// How far ahead a server's clock may be; as much as certificates allow for.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// A signed task on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Envelope {
    /// A [`Statement`] as JSON, in standard base64.
    pub payload: String,
    /// [`PAYLOAD_TYPE`].
    #[serde(rename = "payloadType")]
    pub payload_type: String,
    /// Who signed it.
    pub signatures: Vec<EnvelopeSignature>,
}

/// One signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EnvelopeSignature {
    /// [`key_id`] of the key.
    pub keyid: String,
    /// Over [`pae`], in standard base64.
    pub sig: String,
}

impl Envelope {
    /// The payload, whoever wrote it: only to say of which task a refusal is. None when it is none, or too large.
    pub fn unverified(&self) -> Option<Vec<u8>> {
        if self.payload.len() > MAX_PAYLOAD_BYTES * 4 / 3 + 4 {
            return None;
        }
        STANDARD.decode(&self.payload).ok()
    }
}

/// What a task says to its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// Which task.
    pub task: TaskId,
    /// Who is to do it.
    pub node: NodeId,
    /// Identity epoch of the node when it was issued.
    pub node_epoch: u64,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// From when on it is not begun any more.
    pub expires_at: Timestamp,
    /// 16 random bytes, in hex: never used for two tasks.
    pub nonce: String,
    /// What is to be done.
    #[serde(flatten)]
    pub input: TaskInput,
}

/// A public key that signs tasks, as it is handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TaskKey {
    /// [`key_id`] of the key.
    pub key_id: String,
    /// The ed25519 public key, 32 bytes in standard base64.
    pub public_key: String,
}

/// First 16 hex digits of the SHA-256 of a public key.
pub fn key_id(public: &[u8; 32]) -> String {
    hex::encode(&Sha256::digest(public)[..8])
}

/// What is signed: DSSE's pre-authentication encoding.
pub fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// Signs tasks.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey);

impl SigningKey {
    /// From the 32 bytes that the secret store keeps; `None` when they are not 32.
    pub fn from_seed(seed: &Secret<Vec<u8>>) -> Option<Self> {
        let seed: &[u8; 32] = seed.expose().as_slice().try_into().ok()?;
        Some(Self(ed25519_dalek::SigningKey::from_bytes(seed)))
    }

    /// What agents need to check its signatures.
    pub fn public(&self) -> TaskKey {
        let public = self.0.verifying_key();
        TaskKey { key_id: key_id(public.as_bytes()), public_key: STANDARD.encode(public.as_bytes()) }
    }

    /// Puts a statement into an envelope. The same statement gives the same envelope.
    pub fn seal(&self, statement: &Statement) -> Envelope {
        let payload = serde_json::to_vec(statement).expect("a statement has only text keys");
        self.seal_bytes(PAYLOAD_TYPE, &payload)
    }

    /// Signs any payload as one of that type: it fits no other type.
    pub fn seal_bytes(&self, payload_type: &str, payload: &[u8]) -> Envelope {
        let signature = self.0.sign(&pae(payload_type, payload));
        Envelope {
            payload: STANDARD.encode(payload),
            payload_type: payload_type.to_owned(),
            signatures: vec![EnvelopeSignature {
                keyid: self.public().key_id,
                sig: STANDARD.encode(signature.to_bytes()),
            }],
        }
    }
}

/// The keys that an agent trusts.
#[derive(Debug, Clone, Default)]
pub struct KeySet(Vec<(String, VerifyingKey)>);

/// Who looks at an envelope, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// The node that the agent is.
    pub node: NodeId,
    /// Its identity epoch; none: the agent was not told.
    pub node_epoch: Option<u64>,
    /// The agent's clock.
    pub now: Timestamp,
}

/// What of a payload is read first, so that a kind from the future is told from nonsense.
#[derive(Deserialize)]
struct Named {
    kind: String,
}

impl KeySet {
    /// From keys as they are handed out; those that are none are left out.
    pub fn new(keys: &[TaskKey]) -> Self {
        let parse = |key: &TaskKey| {
            let bytes: [u8; 32] = STANDARD.decode(&key.public_key).ok()?.try_into().ok()?;
            // The id is computed, never believed: it only finds the key.
            Some((key_id(&bytes), VerifyingKey::from_bytes(&bytes).ok()?))
        };
        Self(keys.iter().filter_map(parse).collect())
    }

    /// The statement of an envelope that may be begun at `expected.now`. Replays are not seen here: that takes memory.
    ///
    /// # Errors
    /// Why it is refused, and one line for people.
    pub fn open(&self, envelope: &Envelope, expected: Expected) -> Result<Statement, (TaskErrorCode, String)> {
        let payload = self.authentic(envelope, PAYLOAD_TYPE)?;
        let malformed =
            |error: serde_json::Error| (TaskErrorCode::Malformed, format!("its payload is not a task: {error}"));
        let named: Named = serde_json::from_slice(&payload).map_err(malformed)?;
        if named.kind.parse::<TaskKind>().is_err() {
            let kind: String = named.kind.chars().take(64).collect();
            return Err((TaskErrorCode::UnknownKind, format!("this agent knows no task `{kind}`")));
        }
        let statement: Statement = serde_json::from_slice(&payload).map_err(malformed)?;
        statement.check(expected)?;
        Ok(statement)
    }

    /// The payload, once a trusted key signed it as one of that type.
    ///
    /// # Errors
    /// It is of another type, too large, or no trusted key signed it.
    pub fn authentic(&self, envelope: &Envelope, payload_type: &str) -> Result<Vec<u8>, (TaskErrorCode, String)> {
        let malformed = |why: &str| (TaskErrorCode::Malformed, why.to_owned());
        if envelope.payload_type != payload_type {
            return Err(malformed("its payload is of another type"));
        }
        if envelope.payload.len() > MAX_PAYLOAD_BYTES * 4 / 3 + 4 || envelope.signatures.len() > MAX_SIGNATURES {
            return Err(malformed("it is larger than one may be"));
        }
        let payload = STANDARD.decode(&envelope.payload).map_err(|_| malformed("its payload is not base64"))?;
        let signed = pae(payload_type, &payload);
        let mut known = false;
        for signature in &envelope.signatures {
            let Some((_, key)) = self.0.iter().find(|(id, _)| *id == signature.keyid) else { continue };
            known = true;
            let bytes = STANDARD.decode(&signature.sig).ok().and_then(|bytes| <[u8; 64]>::try_from(bytes).ok());
            if bytes.is_some_and(|bytes| key.verify_strict(&signed, &Signature::from_bytes(&bytes)).is_ok()) {
                return Ok(payload);
            }
        }
        Err(match known {
            true => (TaskErrorCode::BadSignature, "its signature does not fit".to_owned()),
            false => (TaskErrorCode::UnknownKey, "no key that is trusted signed it".to_owned()),
        })
    }
}

impl Statement {
    fn check(&self, expected: Expected) -> Result<(), (TaskErrorCode, String)> {
        if self.node != expected.node {
            return Err((TaskErrorCode::WrongNode, format!("it is for node {}", self.node)));
        }
        if let Some(epoch) = expected.node_epoch
            && epoch != self.node_epoch
        {
            let why = format!("it was issued for identity epoch {}, the node is at {epoch}", self.node_epoch);
            return Err((TaskErrorCode::StaleEpoch, why));
        }
        if expected.now >= self.expires_at {
            return Err((TaskErrorCode::Expired, format!("it expired at {}", self.expires_at)));
        }
        if expected.now + CLOCK_SKEW < self.issued_at {
            let why = format!("it was issued at {}: compare this host's clock", self.issued_at);
            return Err((TaskErrorCode::NotYetValid, why));
        }
        if self.nonce.len() != 32 || !self.nonce.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err((TaskErrorCode::Malformed, "its nonce is not 16 bytes in hex".to_owned()));
        }
        self.input.check().map_err(|invalid| (TaskErrorCode::InvalidInput, invalid.to_string()))
    }
}
