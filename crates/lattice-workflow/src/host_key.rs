//! The SSH host key of one deployment: made here, given to the host by cloud-init, pinned from then on.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::SigningKey;
use lattice_core::secret::{Secret, Wipe};

/// A key pair in OpenSSH's formats.
pub struct HostKey {
    /// `ssh-ed25519 AAAA… comment`.
    pub public: String,
    /// `-----BEGIN OPENSSH PRIVATE KEY-----` …
    pub private: Secret<String>,
}

/// Width of a line of OpenSSH's armour.
const LINE: usize = 70;

/// The key pair of a seed; whoever has the seed has the key.
pub fn host_key(seed: [u8; 32], comment: &str) -> HostKey {
    let key = SigningKey::from_bytes(&seed);
    let public = key.verifying_key().to_bytes();
    let blob = [string(b"ssh-ed25519"), string(&public)].concat();
    let mut secret = [seed, public].concat();
    // Two equal numbers tell a reader that it decrypted well; without a cipher any will do.
    let check = &public[..4];
    let fields =
        [check, check, &string(b"ssh-ed25519"), &string(&public), &string(&secret), &string(comment.as_bytes())];
    let mut private = fields.concat();
    secret.wipe();
    for pad in 1..=8_u8 {
        if private.len().is_multiple_of(8) {
            break;
        }
        private.push(pad);
    }
    let head = b"openssh-key-v1\0".to_vec();
    let parts =
        [head, string(b"none"), string(b"none"), string(b""), vec![0, 0, 0, 1], string(&blob), string(&private)];
    private.wipe();
    let mut whole = parts.concat();
    let text = armour(&STANDARD.encode(&whole));
    whole.wipe();
    HostKey { public: format!("ssh-ed25519 {} {comment}", STANDARD.encode(blob)), private: Secret::new(text) }
}

/// A byte string with its length before it, as SSH writes it.
fn string(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("a key's fields are short").to_be_bytes();
    [&length, bytes].concat()
}

fn armour(base64: &str) -> String {
    let mut text = String::from("-----BEGIN OPENSSH PRIVATE KEY-----\n");
    let mut rest = base64;
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str("-----END OPENSSH PRIVATE KEY-----\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_pair_each_time_and_its_parts_fit() {
        let (one, again) = (host_key([7; 32], "c07u43"), host_key([7; 32], "c07u43"));
        assert_eq!(one.public, again.public);
        assert_eq!(one.private.expose(), again.private.expose());
        assert!(one.public.starts_with("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"));
        let body: String = one.private.expose().lines().filter(|line| !line.starts_with('-')).collect();
        let bytes = STANDARD.decode(body).unwrap();
        let public = STANDARD.decode(one.public.split(' ').nth(1).unwrap()).unwrap();
        assert!(bytes.windows(public.len()).any(|part| part == public));
        assert!(bytes.windows(32).any(|part| part == [7; 32]));
    }
}
