//! OAuth 1.0 with PLAINTEXT signatures, as MAAS checks it. spec: MAAS contract section 2

use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use lattice_core::secret::Secret;
use lattice_core::time::Timestamp;

/// An API key, and the nonces that were used with it.
pub(super) struct Signer {
    consumer: String,
    token: Secret<String>,
    secret: Secret<String>,
    nonce_prefix: String,
    nonces: AtomicU64,
}

/// A key that is not `consumer:token:secret`. Its text says nothing about the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the API key is not of the form `consumer:token:secret`")]
pub(super) struct InvalidApiKey;

impl Signer {
    /// Reads a key `C:T:S`. `nonce_prefix` must be unique to this process: MAAS keeps every nonce of a token.
    pub(super) fn new(key: &Secret<String>, nonce_prefix: String) -> Result<Self, InvalidApiKey> {
        let mut parts = key.expose().trim().split(':');
        let (Some(consumer), Some(token), Some(secret), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(InvalidApiKey);
        };
        let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_graphic() && b != b'"');
        if [consumer, token, secret].into_iter().all(plain) && plain(&nonce_prefix) {
            Ok(Self {
                consumer: consumer.to_owned(),
                token: Secret::new(token.to_owned()),
                secret: Secret::new(secret.to_owned()),
                nonce_prefix,
                nonces: AtomicU64::new(0),
            })
        } else {
            Err(InvalidApiKey)
        }
    }

    /// The `Authorization` header of one try. Each call uses a nonce: a repeat must be signed again.
    pub(super) fn sign(&self, now: Timestamp) -> HeaderValue {
        let nonce = self.nonces.fetch_add(1, Ordering::Relaxed);
        // The signature is the empty consumer secret, `&`, and the token secret, percent-encoded: `%26S`.
        let text = Secret::new(format!(
            "OAuth oauth_version=\"1.0\", oauth_signature_method=\"PLAINTEXT\", oauth_consumer_key=\"{}\", \
             oauth_token=\"{}\", oauth_signature=\"%26{}\", oauth_nonce=\"{}-{nonce}\", oauth_timestamp=\"{}\"",
            encoded(&self.consumer),
            encoded(self.token.expose()),
            encoded(self.secret.expose()),
            encoded(&self.nonce_prefix),
            now.as_secs(),
        ));
        let mut header = HeaderValue::from_str(text.expose()).expect("every part is printable ASCII");
        header.set_sensitive(true);
        header
    }

    /// The parts that no text may hold.
    pub(super) fn secrets(&self) -> [&str; 2] {
        [self.token.expose(), self.secret.expose()]
    }
}

/// Percent-encodes all but the unreserved characters of RFC 3986.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(key: &str) -> Result<Signer, InvalidApiKey> {
        Signer::new(&Secret::new(key.to_owned()), "p".to_owned())
    }

    #[test]
    fn the_header_is_the_one_of_the_contract() {
        let signer = signer("C:T:S/\n").unwrap();
        let header = signer.sign(Timestamp::from_millis(1_763_712_764_999));
        assert_eq!(
            header.to_str().unwrap(),
            "OAuth oauth_version=\"1.0\", oauth_signature_method=\"PLAINTEXT\", oauth_consumer_key=\"C\", \
             oauth_token=\"T\", oauth_signature=\"%26S%2F\", oauth_nonce=\"p-0\", oauth_timestamp=\"1763712764\""
        );
        assert_eq!(format!("{header:?}"), "Sensitive");
    }

    #[test]
    fn no_nonce_is_used_twice() {
        let signer = signer("C:T:S").unwrap();
        let now = Timestamp::from_millis(0);
        assert_ne!(signer.sign(now), signer.sign(now));
    }

    #[test]
    fn keys_of_another_form_are_refused_without_being_shown() {
        for bad in ["", "C:T", "C:T:S:X", ":T:S", "C::S", "C:T:", "C:T:a b", "C:T:\"", "C:T:\u{e9}"] {
            assert_eq!(signer(bad).err(), Some(InvalidApiKey), "{bad}");
        }
    }
}
