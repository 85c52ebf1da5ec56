//! The key of the encrypted file: in a file of its own, readable by its owner alone; and files replaced whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{digest, rand};
use lattice_core::secret::Secret;

use crate::secret::SecretError;

/// Bytes that a sealed text is longer than the text.
pub(super) const TAG: usize = 16;
/// Bytes of a nonce.
pub(super) const NONCE: usize = 12;

/// Seals and opens; tells keys apart without telling anything about them. It cannot be printed.
pub(super) struct Cipher {
    key: LessSafeKey,
    id: [u8; 8],
}

impl Cipher {
    fn new(key: &Secret<Vec<u8>>) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"lattice secret file key id");
        context.update(key.expose());
        let id = context.finish().as_ref()[..8].try_into().expect("a digest is longer");
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.expose()).expect("the key has 32 bytes"));
        Self { key, id }
    }

    /// What says which key sealed a file.
    pub(super) const fn id(&self) -> [u8; 8] {
        self.id
    }

    /// Seals `text` in place, together with `beside`, which stays readable.
    pub(super) fn seal(&self, nonce: [u8; NONCE], beside: &[u8], text: &mut Vec<u8>) {
        // A random nonce of 96 bits for each: fewer than 2^32 of them under one key are safe.
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(beside), text)
            .expect("the content is far below the cipher's limit");
    }

    /// What was sealed; none when anything of it was changed.
    pub(super) fn open(&self, nonce: [u8; NONCE], beside: &[u8], sealed: &[u8]) -> Option<Secret<Vec<u8>>> {
        let mut buffer = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let length = self.key.open_in_place(nonce, Aad::from(beside), &mut buffer).ok()?.len();
        buffer.truncate(length);
        Some(Secret::new(buffer))
    }
}

/// Random bytes of the operating system.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).expect("the operating system gives random numbers");
    bytes
}

/// The key in `file`; it is made where there is none and nothing was encrypted with it yet.
///
/// # Errors
/// Others can read it, it is no key, it is gone while `store` is there, no access.
pub(super) fn read_or_make(file: &Path, store: &Path) -> Result<Cipher, SecretError> {
    let key = match read(file) {
        Err(SecretError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            if store.exists() {
                return Err(SecretError::KeyMissing { file: file.to_owned(), store: store.to_owned() });
            }
            make(file)?
        }
        other => other?,
    };
    Ok(Cipher::new(&key))
}

fn read(file: &Path) -> Result<Secret<Vec<u8>>, SecretError> {
    let failed = |source| SecretError::Io { what: "read", file: file.to_owned(), source };
    let opened = File::open(file).map_err(failed)?;
    let mode = opened.metadata().map_err(failed)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(SecretError::KeyExposed { file: file.to_owned(), mode });
    }
    let mut text = String::new();
    opened.take(128).read_to_string(&mut text).map_err(failed)?;
    let text = Secret::new(text);
    match hex::decode(text.expose().trim_end()) {
        Ok(key) if key.len() == 32 => Ok(Secret::new(key)),
        Ok(_) | Err(_) => Err(SecretError::KeyMalformed { file: file.to_owned() }),
    }
}

fn make(file: &Path) -> Result<Secret<Vec<u8>>, SecretError> {
    let key = Secret::new(random::<32>().to_vec());
    let text = Secret::new(format!("{}\n", hex::encode(key.expose())));
    // Replaced, not created in place: a crash must not leave half a key behind.
    replace(file, text.expose().as_bytes()).map_err(|source| SecretError::Io {
        what: "create",
        file: file.to_owned(),
        source,
    })?;
    Ok(key)
}

/// Writes a file of its own, then renames it to `file`: at any crash the one or the other is there, whole.
///
/// # Errors
/// The operating system refuses; what was there is untouched, unless the very last step fails.
pub(super) fn replace(file: &Path, bytes: &[u8]) -> io::Result<File> {
    let fresh = file.with_extension("new");
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut opened = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&fresh)?;
    opened.write_all(bytes)?;
    opened.sync_all()?;
    std::fs::rename(&fresh, file)?;
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()?;
    Ok(opened)
}
