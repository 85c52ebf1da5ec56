//! The key that signs tasks. Agents get its public half at enrolment and at each renewal.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer, SigningKey};
use lattice_api::agent::TaskSigningKey;
use lattice_core::secret::Secret;
use sha2::{Digest, Sha256};

/// Signs tasks with ed25519.
pub struct TaskSigner {
    key: SigningKey,
}

impl TaskSigner {
    /// From the 32 bytes that the secret store keeps; `None` when they are not 32.
    pub fn from_seed(seed: &Secret<Vec<u8>>) -> Option<Self> {
        let seed: &[u8; 32] = seed.expose().as_slice().try_into().ok()?;
        Some(Self { key: SigningKey::from_bytes(seed) })
    }

    /// What agents need to check its signatures.
    pub fn public(&self) -> TaskSigningKey {
        let public = self.key.verifying_key();
        let digest = hex::encode(Sha256::digest(public.as_bytes()));
        TaskSigningKey { key_id: digest[..16].to_owned(), public_key: STANDARD.encode(public.as_bytes()) }
    }

    /// Signs `message`.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message).to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signature, VerifyingKey};

    use super::*;

    #[test]
    fn a_signature_fits_the_key_that_agents_get() {
        let signer = TaskSigner::from_seed(&Secret::new(vec![7; 32])).unwrap();
        let public: [u8; 32] = STANDARD.decode(signer.public().public_key).unwrap().try_into().unwrap();
        let key = VerifyingKey::from_bytes(&public).unwrap();
        let signature = Signature::from_bytes(&signer.sign(b"task"));
        assert!(key.verify_strict(b"task", &signature).is_ok());
        assert!(key.verify_strict(b"another task", &signature).is_err());
        assert!(TaskSigner::from_seed(&Secret::new(vec![7; 31])).is_none());
    }
}
