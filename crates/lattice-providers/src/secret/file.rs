//! Secrets in one encrypted file: AES-256-GCM, one key in a file of its own, replaced atomically.
//!
//! Layout: `LATSECR\n`, format (2 bytes), key id (8), nonce (12), length of the rest (8), ciphertext with its tag.
//! All that stands before the ciphertext is authenticated with it. Numbers are big-endian.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{digest, rand};
use lattice_core::secret::Secret;

use super::{SecretError, SecretObject, SecretPath, SecretStore};

const MAGIC: &[u8; 8] = b"LATSECR\n";
const FORMAT: u16 = 1;
const NONCE_AT: usize = 18;
const LENGTH_AT: usize = 30;
const HEADER: usize = 38;
/// Larger files are not ours: a secret per node of the largest fleet takes a hundredth of it.
const LARGEST_FILE: u64 = 256 << 20;

type Objects = BTreeMap<String, SecretObject>;

/// The encrypted file and its key.
pub struct FileSecretStore {
    inner: Arc<Mutex<Vault>>,
}

struct Vault {
    store: PathBuf,
    key_file: PathBuf,
    key: Secret<Vec<u8>>,
}

impl FileSecretStore {
    /// Opens `secrets.enc` in `directory` with the key in `key_file`, and proves that both fit together.
    ///
    /// The first start makes the key, readable by its owner alone.
    ///
    /// # Errors
    /// The key is missing, exposed or another one; the file is damaged or of a later format; no access.
    pub fn open(directory: &Path, key_file: &Path) -> Result<Self, SecretError> {
        let store = directory.join("secrets.enc");
        let key = match read_key(key_file) {
            Err(SecretError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                if store.exists() {
                    return Err(SecretError::KeyMissing { file: key_file.to_owned(), store });
                }
                make_key(key_file)?
            }
            other => other?,
        };
        let vault = Vault { store, key_file: key_file.to_owned(), key };
        vault.load()?;
        Ok(Self { inner: Arc::new(Mutex::new(vault)) })
    }

    async fn locked<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Vault) -> Result<T, SecretError> + Send + 'static,
    ) -> Result<T, SecretError> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || work(&inner.lock().unwrap_or_else(PoisonError::into_inner)))
            .await
            .expect("file access neither panics nor is cancelled")
    }
}

#[async_trait]
impl SecretStore for FileSecretStore {
    async fn read(&self, path: &SecretPath) -> Result<SecretObject, SecretError> {
        let path = path.clone();
        self.locked(move |vault| vault.load()?.remove(path.as_str()).ok_or(SecretError::NotFound { path })).await
    }

    async fn write(&self, path: &SecretPath, object: SecretObject) -> Result<(), SecretError> {
        let path = path.as_str().to_owned();
        self.locked(move |vault| {
            let mut objects = vault.load()?;
            objects.insert(path, object);
            vault.save(&objects)
        })
        .await
    }

    async fn delete(&self, path: &SecretPath) -> Result<(), SecretError> {
        let path = path.as_str().to_owned();
        self.locked(move |vault| {
            let mut objects = vault.load()?;
            match objects.remove(&path) {
                Some(_) => vault.save(&objects),
                None => Ok(()),
            }
        })
        .await
    }
}

impl Vault {
    fn load(&self) -> Result<Objects, SecretError> {
        let Some(bytes) = self.read_file()? else {
            return Ok(Objects::new());
        };
        let damaged = |what| SecretError::Damaged { store: self.store.clone(), what };
        let (header, sealed) = bytes.split_at_checked(HEADER).ok_or_else(|| damaged("it ends within its header"))?;
        if &header[..8] != MAGIC {
            return Err(damaged("it does not begin as a secret file"));
        }
        let found = u16::from_be_bytes([header[8], header[9]]);
        if found > FORMAT {
            return Err(SecretError::FormatNewer { store: self.store.clone(), found, known: FORMAT });
        }
        if header[10..NONCE_AT] != key_id(self.key.expose()) {
            return Err(SecretError::KeyForeign { file: self.key_file.clone(), store: self.store.clone() });
        }
        let length = u64::from_be_bytes(header[LENGTH_AT..HEADER].try_into().expect("eight bytes"));
        if length != sealed.len() as u64 {
            return Err(damaged("it is shorter or longer than it says"));
        }
        let nonce = Nonce::try_assume_unique_for_key(&header[NONCE_AT..LENGTH_AT]).expect("twelve bytes");
        let plain = open(&self.key, nonce, header, sealed).ok_or_else(|| damaged("its content was changed"))?;
        serde_json::from_slice(plain.expose()).map_err(|_| damaged("its content is not the expected JSON"))
    }

    fn read_file(&self) -> Result<Option<Vec<u8>>, SecretError> {
        let failed = |source| SecretError::Io { what: "read", file: self.store.clone(), source };
        let file = match File::open(&self.store) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed)?,
        };
        let mut bytes = Vec::new();
        file.take(LARGEST_FILE).read_to_end(&mut bytes).map_err(failed)?;
        Ok(Some(bytes))
    }

    fn save(&self, objects: &Objects) -> Result<(), SecretError> {
        let bytes = self.sealed(objects);
        let fresh = self.store.with_extension("new");
        replace(&self.store, &fresh, &bytes).map_err(|source| SecretError::Io {
            what: "write",
            file: self.store.clone(),
            source,
        })
    }

    fn sealed(&self, objects: &Objects) -> Vec<u8> {
        let exposed: BTreeMap<&str, BTreeMap<&str, &str>> = objects
            .iter()
            .map(|(path, object)| {
                (path.as_str(), object.iter().map(|(name, value)| (name.as_str(), value.expose().as_str())).collect())
            })
            .collect();
        let mut buffer = serde_json::to_vec(&exposed).expect("maps of strings are JSON");
        let mut nonce = [0; 12];
        fill(&mut nonce);
        let mut header = Vec::with_capacity(HEADER + buffer.len() + AES_256_GCM.tag_len());
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&FORMAT.to_be_bytes());
        header.extend_from_slice(&key_id(self.key.expose()));
        header.extend_from_slice(&nonce);
        header.extend_from_slice(&((buffer.len() + AES_256_GCM.tag_len()) as u64).to_be_bytes());
        // A random nonce of 96 bits per write: fewer than 2^32 writes under one key are safe.
        cipher(&self.key)
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(&header), &mut buffer)
            .expect("the content is far below the cipher's limit");
        header.extend_from_slice(&buffer);
        header
    }
}

fn open(key: &Secret<Vec<u8>>, nonce: Nonce, header: &[u8], sealed: &[u8]) -> Option<Secret<Vec<u8>>> {
    let mut buffer = sealed.to_vec();
    let length = cipher(key).open_in_place(nonce, Aad::from(header), &mut buffer).ok()?.len();
    buffer.truncate(length);
    Some(Secret::new(buffer))
}

fn cipher(key: &Secret<Vec<u8>>) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.expose()).expect("the key has 32 bytes"))
}

/// Tells keys apart without telling anything about them.
fn key_id(key: &[u8]) -> [u8; 8] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(b"lattice secret file key id");
    context.update(key);
    context.finish().as_ref()[..8].try_into().expect("a digest is longer")
}

fn fill(bytes: &mut [u8]) {
    rand::fill(bytes).expect("the operating system gives random numbers");
}

fn read_key(file: &Path) -> Result<Secret<Vec<u8>>, SecretError> {
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

fn make_key(file: &Path) -> Result<Secret<Vec<u8>>, SecretError> {
    let mut key = vec![0; 32];
    fill(&mut key);
    let key = Secret::new(key);
    let text = Secret::new(format!("{}\n", hex::encode(key.expose())));
    // Replaced, not created in place: a crash must not leave half a key behind.
    replace(file, &file.with_extension("new"), text.expose().as_bytes()).map_err(|source| SecretError::Io {
        what: "create",
        file: file.to_owned(),
        source,
    })?;
    Ok(key)
}

/// Writes `fresh`, then renames it to `file`: at any crash the one or the other is there, whole.
fn replace(file: &Path, fresh: &Path, bytes: &[u8]) -> io::Result<()> {
    match std::fs::remove_file(fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    write_durably(fresh, bytes)?;
    std::fs::rename(fresh, file)?;
    sync_parent(file)
}

fn write_durably(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    opened.write_all(bytes)?;
    opened.sync_all()
}

fn sync_parent(file: &Path) -> io::Result<()> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        directory: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            Self { directory: tempfile::tempdir().unwrap() }
        }
        fn key(&self) -> PathBuf {
            self.directory.path().join("secrets.key")
        }
        fn file(&self) -> PathBuf {
            self.directory.path().join("secrets.enc")
        }
        fn open(&self) -> Result<FileSecretStore, SecretError> {
            FileSecretStore::open(self.directory.path(), &self.key())
        }
        fn error(&self) -> String {
            self.open().err().expect("an error").to_string()
        }
    }

    fn path(text: &str) -> SecretPath {
        text.parse().unwrap()
    }

    fn object(pairs: &[(&str, &str)]) -> SecretObject {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), Secret::new((*value).to_owned()))).collect()
    }

    async fn filled() -> Place {
        let place = Place::new();
        let store = place.open().unwrap();
        store.write(&path("kv/site/power"), object(&[("user", "root"), ("pass", "hunter22")])).await.unwrap();
        place
    }

    #[tokio::test]
    async fn what_is_written_is_read_after_a_restart() {
        let place = filled().await;
        let store = place.open().unwrap();
        let read = store.read(&path("kv/site/power")).await.unwrap();
        assert_eq!(read["pass"].expose(), "hunter22");
        assert_eq!(
            super::super::read_field(&store, &path("kv/site/power"), "user").await.ok().unwrap().expose(),
            "root"
        );
        let missing = super::super::read_field(&store, &path("kv/site/power"), "token").await.err().unwrap();
        assert_eq!(missing.to_string(), "the secret at kv/site/power has no field `token`");
    }

    #[tokio::test]
    async fn a_deleted_secret_is_gone_and_deleting_twice_is_no_error() {
        let place = filled().await;
        let store = place.open().unwrap();
        store.delete(&path("kv/site/power")).await.unwrap();
        store.delete(&path("kv/site/power")).await.unwrap();
        let error = place.open().unwrap().read(&path("kv/site/power")).await.err().unwrap();
        assert_eq!(error.to_string(), "no secret is stored at kv/site/power");
    }

    #[tokio::test]
    async fn neither_the_file_nor_the_key_tells_a_secret_to_others() {
        let place = filled().await;
        let bytes = std::fs::read(place.file()).unwrap();
        for plain in [b"hunter22".as_slice(), b"root", b"kv/site"] {
            assert!(!bytes.windows(plain.len()).any(|window| window == plain));
        }
        for file in [place.file(), place.key()] {
            assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[tokio::test]
    async fn a_file_cut_at_any_length_is_called_damaged_and_never_empty() {
        let place = filled().await;
        let whole = std::fs::read(place.file()).unwrap();
        for length in 0..whole.len() {
            std::fs::write(place.file(), &whole[..length]).unwrap();
            assert!(place.error().contains("is damaged"), "cut at {length}: {}", place.error());
        }
    }

    #[tokio::test]
    async fn every_flipped_bit_is_noticed() {
        let place = filled().await;
        let whole = std::fs::read(place.file()).unwrap();
        for index in 0..whole.len() {
            let mut changed = whole.clone();
            changed[index] ^= 0x40;
            std::fs::write(place.file(), changed).unwrap();
            assert!(place.open().is_err(), "byte {index}");
        }
    }

    #[tokio::test]
    async fn another_key_a_lost_key_and_a_bad_key_are_told_apart() {
        let place = filled().await;
        let key = std::fs::read(place.key()).unwrap();
        let rewrite = |bytes: &[u8]| std::fs::write(place.key(), bytes).unwrap();
        rewrite(format!("{}\n", "ab".repeat(32)).as_bytes());
        assert!(place.error().contains("another key"), "{}", place.error());
        rewrite(b"not a key");
        assert!(place.error().contains("does not hold a key"), "{}", place.error());
        rewrite(&key);
        std::fs::set_permissions(place.key(), std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(place.error().contains("can be read by others (mode 640)"), "{}", place.error());
        std::fs::remove_file(place.key()).unwrap();
        assert!(place.error().contains("is missing"), "{}", place.error());
    }

    #[tokio::test]
    async fn a_later_format_is_refused_as_such() {
        let place = filled().await;
        let mut bytes = std::fs::read(place.file()).unwrap();
        bytes[9] = 2;
        std::fs::write(place.file(), bytes).unwrap();
        assert!(place.error().contains("has format 2, this version reads up to 1"), "{}", place.error());
    }

    #[tokio::test]
    async fn a_write_that_died_before_its_rename_leaves_the_old_content() {
        let place = filled().await;
        std::fs::write(place.file().with_extension("new"), b"half a fi").unwrap();
        let store = place.open().unwrap();
        assert_eq!(store.read(&path("kv/site/power")).await.unwrap()["user"].expose(), "root");
        store.write(&path("kv/other"), object(&[("token", "a:b:c")])).await.unwrap();
        assert_eq!(place.open().unwrap().read(&path("kv/other")).await.unwrap()["token"].expose(), "a:b:c");
    }
}
