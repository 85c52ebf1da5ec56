//! Values that must never be printed, logged, serialised or stored in a row.

/// Holds a secret. It has no `Debug`, `Display`, `Serialize` or `PartialEq`: the compiler refuses to leak it.
///
/// A text is overwritten when it is dropped.
pub struct Secret<T: Wipe>(T);

/// What can be overwritten before its memory is given back.
pub trait Wipe {
    /// Overwrites the content with zeros.
    fn wipe(&mut self);
}

impl Wipe for String {
    fn wipe(&mut self) {
        let mut bytes = std::mem::take(self).into_bytes();
        bytes.wipe();
    }
}

impl Wipe for Vec<u8> {
    fn wipe(&mut self) {
        self.fill(0);
        // Keeps the compiler from removing the writes above as dead.
        std::hint::black_box(self.as_slice());
    }
}

impl<T: Wipe> Secret<T> {
    /// Takes hold of a secret.
    pub const fn new(value: T) -> Self {
        Self(value)
    }
    /// The secret itself, for the one call that needs it.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<T: Wipe + Clone> Clone for Secret<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Wipe> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.wipe();
    }
}

impl<'de, T: Wipe + serde::Deserialize<'de>> serde::Deserialize<'de> for Secret<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self)
    }
}

/// Compares two byte strings in a time that depends on their lengths alone.
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0u8, |seen, (x, y)| seen | (x ^ y));
    std::hint::black_box(differences) == 0 && a.len() == b.len()
}

/// SHA-256 of a token, in hex: the only form in which a token is stored.
pub fn token_hash(token: &str) -> String {
    use sha2::{Digest, Sha256};
    hex::encode(Sha256::digest(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_and_different_tokens_are_told_apart() {
        assert!(constant_time_eq(b"abc", b"abc"));
        assert!(!constant_time_eq(b"abc", b"abd"));
        assert!(!constant_time_eq(b"abc", b"abcd"));
        assert!(!constant_time_eq(b"", b"a"));
    }
}
