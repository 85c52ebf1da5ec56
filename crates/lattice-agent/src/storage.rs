//! Where an agent keeps what must survive it: identity, the key of an enrolment under way, state.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Item {
    /// Certificate, key and what to trust.
    Identity,
    /// Key of an enrolment whose answer has not arrived.
    PendingKey,
    /// What runs. spec: S1 "Agent Restart and State Recovery"
    State,
    /// Tasks: what was received, begun, done and reported.
    Tasks,
}

/// Where it is kept.
#[derive(Debug, Clone)]
pub enum Storage {
    /// In a folder, the state in a file that may lie elsewhere.
    Folder {
        /// `/var/lib/lattice`.
        folder: PathBuf,
        /// `/var/lib/lattice/agent-state.json`.
        state_file: PathBuf,
    },
    /// In memory, for agents of simulations: clones share it, as restarts of one host share its disk.
    Memory(Arc<MemoryDisk>),
}

/// A disk of a simulated host. It can fail as a real one does: what it holds is read, and nothing is changed.
#[derive(Debug, Default)]
pub struct MemoryDisk {
    items: Mutex<HashMap<Item, Vec<u8>>>,
    fails: AtomicBool,
    refused: AtomicU64,
}

impl MemoryDisk {
    /// Nothing on it can be changed from now on, or everything again.
    pub fn set_failing(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    /// How many changes it refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn items(&self) -> MutexGuard<'_, HashMap<Item, Vec<u8>>> {
        // No change of it can panic half way.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) -> io::Result<MutexGuard<'_, HashMap<Item, Vec<u8>>>> {
        if !self.fails.load(Ordering::Relaxed) {
            return Ok(self.items());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

impl Storage {
    /// An empty memory.
    pub fn memory() -> Self {
        Self::Memory(Arc::default())
    }

    /// A folder, with the state in `state_file` or in the folder.
    pub fn folder(folder: PathBuf, state_file: Option<PathBuf>) -> Self {
        let state_file = state_file.unwrap_or_else(|| folder.join("agent-state.json"));
        Self::Folder { folder, state_file }
    }

    /// Reads an item; `None` when it was never written.
    ///
    /// # Errors
    /// What the file system says, but for a missing file.
    pub async fn read(&self, item: Item) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Folder { .. } => {
                let path = self.path(item);
                blocking(move || match std::fs::read(path) {
                    Ok(bytes) => Ok(Some(bytes)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(error),
                })
                .await
            }
            Self::Memory(disk) => Ok(disk.items().get(&item).cloned()),
        }
    }

    /// Replaces an item: after a crash either the old or the new content is there, whole, and readable by its owner alone.
    ///
    /// # Errors
    /// What the file system says; the old content stands then.
    pub async fn write(&self, item: Item, bytes: Vec<u8>) -> io::Result<()> {
        match self {
            Self::Folder { .. } => {
                let path = self.path(item);
                blocking(move || replace(&path, &bytes, 0o600)).await
            }
            Self::Memory(disk) => disk.changed().map(|mut items| drop(items.insert(item, bytes))),
        }
    }

    /// Takes an unreadable item out of the way, beside its place, for a person to look at.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn set_aside(&self, item: Item) -> io::Result<()> {
        match self {
            Self::Folder { .. } => {
                let path = self.path(item);
                blocking(move || std::fs::rename(&path, path.with_extension("unreadable"))).await
            }
            Self::Memory(disk) => disk.changed().map(|mut items| drop(items.remove(&item))),
        }
    }

    /// Forgets an item.
    ///
    /// # Errors
    /// What the file system says, but for a missing file.
    pub async fn remove(&self, item: Item) -> io::Result<()> {
        match self {
            Self::Folder { .. } => {
                let path = self.path(item);
                blocking(move || match std::fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    Ok(()) | Err(_) => Ok(()),
                })
                .await
            }
            Self::Memory(disk) => disk.changed().map(|mut items| drop(items.remove(&item))),
        }
    }

    fn path(&self, item: Item) -> PathBuf {
        match (self, item) {
            (Self::Folder { state_file, .. }, Item::State) => state_file.clone(),
            (Self::Folder { folder, .. }, Item::Identity) => folder.join("identity.json"),
            (Self::Folder { folder, .. }, Item::PendingKey) => folder.join("pending-key.pem"),
            (Self::Folder { folder, .. }, Item::Tasks) => folder.join("tasks.json"),
            (Self::Memory(_), Item::State | Item::Identity | Item::PendingKey | Item::Tasks) => PathBuf::new(),
        }
    }
}

/// Files are synced off the worker: an agent's heartbeat must not wait for another agent's disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Replaces a file: after a crash either the old or the new content is there, whole, with this mode from its first byte.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let new = path.with_extension("new");
    // Opened anew each time, so that the mode holds even if something left a file of that name there.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    // Without this the rename itself can be lost.
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_disk_that_fails_keeps_what_it_holds() {
        let disk = Arc::new(MemoryDisk::default());
        let storage = Storage::Memory(Arc::clone(&disk));
        storage.write(Item::State, b"one".to_vec()).await.unwrap();
        disk.set_failing(true);
        assert!(storage.write(Item::State, b"two".to_vec()).await.is_err());
        assert!(storage.remove(Item::State).await.is_err());
        assert_eq!(storage.read(Item::State).await.unwrap().as_deref(), Some(&b"one"[..]));
        assert_eq!(disk.refused(), 2);
        disk.set_failing(false);
        storage.remove(Item::State).await.unwrap();
        assert_eq!(storage.read(Item::State).await.unwrap(), None);
    }

    #[tokio::test]
    async fn items_are_replaced_whole_and_readable_by_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let state_file = folder.path().join("elsewhere/state.json");
        let storage = Storage::folder(folder.path().join("state"), Some(state_file.clone()));
        assert_eq!(storage.read(Item::Identity).await.unwrap(), None);
        for (item, text) in [(Item::Identity, "one"), (Item::State, "two"), (Item::Identity, "three")] {
            storage.write(item, text.into()).await.unwrap();
            assert_eq!(storage.read(item).await.unwrap().as_deref(), Some(text.as_bytes()));
        }
        let identity = folder.path().join("state/identity.json");
        assert_eq!(std::fs::metadata(identity).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read(&state_file).unwrap(), b"two");
        storage.set_aside(Item::State).await.unwrap();
        assert_eq!(storage.read(Item::State).await.unwrap(), None);
        assert!(state_file.with_extension("unreadable").exists());
    }
}
