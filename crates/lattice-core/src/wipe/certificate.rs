//! The certificate of one wiped device: signed, and checked without any server.
//!
//! A file holds what is certified in the clear, the signed envelope of the same, and the public key that signed it. That
//! key proves that nothing was changed since; who signed is proven only by comparing it with keys that are known.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::WipeTarget;
use crate::agent::task::{Envelope, KeySet, SigningKey, TaskErrorCode, TaskKey, WipeEvidence, key_id};
use crate::ids::{CertificateId, JobId, NodeId, SiteId, TaskId};
use crate::time::Timestamp;

/// Type of the signed payload.
pub const PAYLOAD_TYPE: &str = "application/vnd.lattice.wipe-certificate.v1+json";

/// Largest file that is looked at, in bytes: a certificate has some kilobytes.
const LARGEST: usize = 256 * 1024;

/// That one device was wiped, and that its node was found to have booted again since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WipeCertificate {
    /// Identity.
    pub id: CertificateId,
    /// Of which node.
    pub node: NodeId,
    /// Its hostname then.
    pub hostname: String,
    /// Its site.
    pub site: SiteId,
    /// The job that wiped it.
    pub job: JobId,
    /// The signed task that erased the device.
    pub task: TaskId,
    /// What was erased.
    pub erased: WipeTarget,
    /// Which device, how, by what tool, from when to when, and what came of it, as the host recorded it.
    pub evidence: WipeEvidence,
    /// Every device of that kind that the host showed.
    pub inventory: BTreeSet<String>,
    /// Devices of that kind that were left as they are.
    pub kept: BTreeSet<String>,
    /// Kernel boot in which it was erased.
    pub boot_before: String,
    /// Kernel boot that was seen afterwards.
    pub boot_after: String,
    /// When the wipe of the node began.
    pub wipe_started_at: Timestamp,
    /// When the wipe of the node was confirmed.
    pub confirmed_at: Timestamp,
}

/// A certificate as it is kept and handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateFile {
    /// What is certified, to be read.
    pub certificate: WipeCertificate,
    /// The same, signed: DSSE with ed25519.
    pub envelope: Envelope,
    /// The public key that signed it, 32 bytes in standard base64.
    pub public_key: String,
}

/// Why a file proves nothing: what does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotProven {
    /// It cannot be read as one.
    #[error("it is no wipe certificate: {why}")]
    NotACertificate {
        /// What is wrong with it.
        why: String,
    },
    /// It says the same in other bytes than those that were written.
    #[error("its text was changed: line {line} is not as it was written")]
    Text {
        /// The first line that differs, from 1.
        line: usize,
    },
    /// The signature names another key than the file has.
    #[error("`envelope.signatures` names key {named}, `public_key` is key {carried}")]
    Key {
        /// As the signature says.
        named: String,
        /// As the file has.
        carried: String,
    },
    /// The signature does not fit.
    #[error("the signature does not fit `envelope.payload`{differs}")]
    Signature {
        /// What differs between what is read and what is signed, if that can be told.
        differs: String,
    },
    /// What is read is not what was signed.
    #[error("`certificate.{field}` says {read}, what was signed says {signed}")]
    Differs {
        /// Which field.
        field: String,
        /// As it is read.
        read: String,
        /// As it was signed.
        signed: String,
    },
    /// It is whole, and its evidence is none.
    #[error("`certificate.evidence` proves nothing: {why}")]
    Evidence {
        /// Why not.
        why: String,
    },
    /// It is whole, and none of the known keys signed it.
    #[error("key {key_id} signed it, which is none of the keys that are known: {known}")]
    Foreign {
        /// The key that signed it.
        key_id: String,
        /// Those that are known.
        known: String,
    },
}

impl WipeCertificate {
    /// Signs it.
    pub fn signed(self, key: &SigningKey) -> CertificateFile {
        let payload = serde_json::to_vec(&self).expect("a certificate has only text keys");
        let envelope = key.seal_bytes(PAYLOAD_TYPE, &payload);
        CertificateFile { certificate: self, envelope, public_key: key.public().public_key }
    }
}

impl CertificateFile {
    /// The text of the file. There is one text for each certificate: any other one was changed.
    pub fn text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a certificate has only text keys");
        text.push('\n');
        text
    }

    /// Id of the key that signed it.
    pub fn key_id(&self) -> String {
        self.envelope.signatures.first().map(|signature| signature.keyid.clone()).unwrap_or_default()
    }

    /// Reads a file and checks that not one byte of it was changed since it was signed.
    ///
    /// That does not say who signed it: [`check_keys`] does.
    ///
    /// # Errors
    /// [`NotProven`] names what does not fit.
    pub fn verify(text: &[u8]) -> Result<Self, NotProven> {
        let not_one = |why: String| NotProven::NotACertificate { why };
        if text.len() > LARGEST {
            return Err(not_one(format!("it has more than {LARGEST} bytes")));
        }
        let file: Self = serde_json::from_slice(text).map_err(|error| not_one(error.to_string()))?;
        let written = file.text();
        if written.as_bytes() != text {
            return Err(NotProven::Text { line: first_other_line(written.as_bytes(), text) });
        }
        let signed = file.signed_payload()?;
        let certificate: WipeCertificate =
            serde_json::from_slice(&signed).map_err(|error| not_one(format!("its payload: {error}")))?;
        if let Some(differs) = difference(&file.certificate, &certificate) {
            return Err(differs);
        }
        file.certificate.evidence.check().map_err(|why| NotProven::Evidence { why: why.to_string() })?;
        Ok(file)
    }

    fn signed_payload(&self) -> Result<Vec<u8>, NotProven> {
        let [signature] = self.envelope.signatures.as_slice() else {
            return Err(NotProven::NotACertificate { why: "it must have one signature".to_owned() });
        };
        let bytes: Option<[u8; 32]> = STANDARD.decode(&self.public_key).ok().and_then(|bytes| bytes.try_into().ok());
        let carried = bytes.as_ref().map(key_id).unwrap_or_else(|| "none".to_owned());
        if carried != signature.keyid {
            return Err(NotProven::Key { named: signature.keyid.clone(), carried });
        }
        let keys = KeySet::new(&[TaskKey { key_id: carried, public_key: self.public_key.clone() }]);
        keys.authentic(&self.envelope, PAYLOAD_TYPE).map_err(|(code, why)| match code == TaskErrorCode::Malformed {
            true => NotProven::NotACertificate { why },
            false => NotProven::Signature { differs: self.differs() },
        })
    }

    /// Where the text and a payload that is not trusted differ: it helps to find what was changed.
    fn differs(&self) -> String {
        let payload = self.envelope.unverified();
        let read: Option<WipeCertificate> = payload.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        match read.and_then(|payload| difference(&self.certificate, &payload)) {
            Some(differs) => format!("; {differs}"),
            None => String::new(),
        }
    }
}

/// Whether one of `known` signed it: only that says who did.
///
/// # Errors
/// [`NotProven::Foreign`] when none did.
pub fn check_keys(file: &CertificateFile, known: &[TaskKey]) -> Result<(), NotProven> {
    if known.iter().any(|key| key.public_key == file.public_key) {
        return Ok(());
    }
    let ids: Vec<&str> = known.iter().map(|key| key.key_id.as_str()).collect();
    let known = if ids.is_empty() { "none is".to_owned() } else { ids.join(", ") };
    Err(NotProven::Foreign { key_id: file.key_id(), known })
}

fn first_other_line(written: &[u8], read: &[u8]) -> usize {
    let same = written.iter().zip(read).take_while(|(one, other)| one == other).count();
    written[..same].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// The first field in which two certificates differ.
fn difference(read: &WipeCertificate, signed: &WipeCertificate) -> Option<NotProven> {
    if read == signed {
        return None;
    }
    let value = |one: &WipeCertificate| serde_json::to_value(one).unwrap_or_default();
    let (field, read, signed) = first_other_field(&value(read), &value(signed), String::new())?;
    Some(NotProven::Differs { field, read, signed })
}

fn first_other_field(read: &Value, signed: &Value, path: String) -> Option<(String, String, String)> {
    match (read, signed) {
        (Value::Object(one), Value::Object(other)) => one.iter().find_map(|(name, value)| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            first_other_field(value, other.get(name).unwrap_or(&Value::Null), path)
        }),
        (one, other) => (one != other).then(|| (path, one.to_string(), other.to_string())),
    }
}
