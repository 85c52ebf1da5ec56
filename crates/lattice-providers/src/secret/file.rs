//! Secrets in one encrypted file: AES-256-GCM, one key in a file of its own, written by one thread.
//!
//! The file is a log ([`log`] has its layout): a write is appended and synced before its caller is answered, and all
//! that wait meanwhile are written together next. Now and then, and at each start, the file is written anew without what
//! was replaced or removed. What it holds stands in memory as well, so reading touches no disk.

mod key;
mod log;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};

use self::key::Cipher;
use self::log::{FORMAT, Objects, Position, Unreadable, Write};
use super::{SecretError, SecretObject, SecretPath, SecretStore};

/// Larger files are not ours: a secret per node of the largest fleet takes a hundredth of it.
const LARGEST_FILE: u64 = 256 << 20;
/// Writes of one group at most: a frame stays well below a megabyte.
const GROUP_MAX: usize = 1_024;
/// Writes that may wait before their callers wait for room.
const QUEUE: usize = 1_024;
/// The log grows by as much as its snapshot has, and at least by this, before it is written anew: then each byte is
/// written twice on average, and what was removed is gone after a thousand more writes or so.
const GROWTH: u64 = 256 << 10;

type Reply = oneshot::Sender<Result<(), SecretError>>;

/// The encrypted file and its key.
pub struct FileSecretStore {
    file: PathBuf,
    objects: Arc<RwLock<Objects>>,
    queue: Option<mpsc::Sender<(Write, Reply)>>,
    thread: Option<JoinHandle<()>>,
    torn: usize,
}

impl FileSecretStore {
    /// Opens `secrets.enc` in `directory` with the key in `key_file`, and proves that both fit together.
    ///
    /// The first start makes the key, readable by its owner alone.
    ///
    /// # Errors
    /// The key is missing, exposed or another one; the file is damaged or of a later format; another process has it
    /// open; no access.
    pub fn open(directory: &Path, key_file: &Path) -> Result<Self, SecretError> {
        let file = directory.join("secrets.enc");
        let lock = lock(&directory.join("secrets.lock"))?;
        let cipher = key::read_or_make(key_file, &file)?;
        let content = load(&cipher, &file, key_file)?;
        let torn = content.torn;
        let objects = Arc::new(RwLock::new(content.objects));
        let mut writer = Writer { file: file.clone(), cipher, objects: Arc::clone(&objects), log: None, _lock: lock };
        writer.log = match content.end.filter(|end| end.number == 1) {
            Some(end) => Some(writer.continued(end)?),
            // Nothing to keep: the file is made by the first write.
            None if !file.exists() => None,
            None => Some(writer.rewritten(&writer.objects().clone())?),
        };
        let (queue, requests) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new().name("lattice-secrets".to_owned()).spawn(move || writer.run(requests));
        let thread =
            thread.map_err(|source| SecretError::Io { what: "start the writer of", file: file.clone(), source })?;
        Ok(Self { file, objects, queue: Some(queue), thread: Some(thread), torn })
    }

    /// Bytes of a write that was cut off by a crash, before its caller was told anything. They are gone.
    pub const fn torn_bytes(&self) -> usize {
        self.torn
    }

    /// Paths of all secrets, in order.
    pub fn paths(&self) -> Vec<SecretPath> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.keys().filter_map(|path| path.parse().ok()).collect()
    }

    async fn put(&self, path: &SecretPath, object: Option<SecretObject>) -> Result<(), SecretError> {
        let gone =
            || SecretError::Io { what: "write", file: self.file.clone(), source: io::ErrorKind::BrokenPipe.into() };
        let (reply, answer) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or_else(gone)?;
        queue.send(((path.as_str().to_owned(), object), reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

#[async_trait]
impl SecretStore for FileSecretStore {
    async fn read(&self, path: &SecretPath) -> Result<SecretObject, SecretError> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.get(path.as_str()).cloned().ok_or_else(|| SecretError::NotFound { path: path.clone() })
    }

    async fn write(&self, path: &SecretPath, object: SecretObject) -> Result<(), SecretError> {
        self.put(path, Some(object)).await
    }

    async fn delete(&self, path: &SecretPath) -> Result<(), SecretError> {
        self.put(path, None).await
    }
}

impl Drop for FileSecretStore {
    /// Waits until the writer has ended, so that the file is free when this returns.
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the writer was printed by the writer; nothing more can be done about it here.
            drop(thread.join());
        }
    }
}

/// The one who writes.
struct Writer {
    file: PathBuf,
    cipher: Cipher,
    objects: Arc<RwLock<Objects>>,
    /// None when nothing can be appended: there is no file yet, or a write failed and nobody knows what it left.
    log: Option<Log>,
    /// Held as long as anything may be written.
    _lock: Lock,
}

/// The lock of the directory, until it is dropped.
struct Lock(File);

impl Drop for Lock {
    /// Closing the file is not enough: a process that is started at this moment has a copy of it, and with it the lock,
    /// until its program begins.
    fn drop(&mut self) {
        // Should this fail, the lock goes with the last copy.
        let _ = self.0.unlock();
    }
}

/// The file, open at its end.
struct Log {
    opened: File,
    end: Position,
    /// Length at which it is written anew.
    enough: u64,
}

impl Writer {
    fn run(mut self, mut requests: mpsc::Receiver<(Write, Reply)>) {
        while let Some(first) = requests.blocking_recv() {
            let mut group = vec![first];
            while group.len() < GROUP_MAX
                && let Ok(more) = requests.try_recv()
            {
                group.push(more);
            }
            let (writes, replies): (Vec<Write>, Vec<Reply>) = group.into_iter().unzip();
            let outcome = self.commit(writes);
            for reply in replies {
                let answer = outcome.as_ref().copied().map_err(|source| SecretError::Io {
                    what: "write",
                    file: self.file.clone(),
                    source: again(source),
                });
                // A caller that went away does not need its answer.
                drop(reply.send(answer));
            }
        }
    }

    /// Makes a group durable, then visible.
    fn commit(&mut self, mut writes: Vec<Write>) -> io::Result<()> {
        self.leave_out_vain_deletes(&mut writes);
        if writes.is_empty() {
            return Ok(());
        }
        match self.log.take() {
            Some(log) if log.end.length < log.enough => {
                self.log = Some(self.appended(log, &writes)?);
                log::apply(&mut self.objects_mut(), writes);
            }
            Some(_) | None => {
                let mut objects = self.objects().clone();
                log::apply(&mut objects, writes);
                self.log = Some(self.rewritten_io(&objects)?);
                *self.objects_mut() = objects;
            }
        }
        Ok(())
    }

    /// Removing what is not there needs no disk.
    fn leave_out_vain_deletes(&self, writes: &mut Vec<Write>) {
        let objects = self.objects();
        let mut written = std::collections::HashSet::new();
        writes.retain(|(path, object)| {
            if object.is_some() {
                written.insert(path.clone());
            }
            object.is_some() || objects.contains_key(path) || written.contains(path)
        });
    }

    fn appended(&self, mut log: Log, writes: &[Write]) -> io::Result<Log> {
        let (frame, end) = log::group(&self.cipher, log.end, writes);
        let written = log.opened.write_all(&frame).and_then(|()| log.opened.sync_data());
        if let Err(failed) = written {
            // The callers are told that nothing was written: a later start should not find it. Should this fail as
            // well, the next write replaces the file.
            drop(log.opened.set_len(log.end.length).and_then(|()| log.opened.sync_data()));
            return Err(failed);
        }
        log.end = end;
        Ok(log)
    }

    fn rewritten(&self, objects: &Objects) -> Result<Log, SecretError> {
        self.rewritten_io(objects).map_err(|source| SecretError::Io { what: "write", file: self.file.clone(), source })
    }

    fn rewritten_io(&self, objects: &Objects) -> io::Result<Log> {
        let (bytes, end) = log::snapshot(&self.cipher, objects);
        if end.length > LARGEST_FILE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(Log::new(key::replace(&self.file, &bytes)?, end))
    }

    /// Goes on with the file as it is.
    fn continued(&self, end: Position) -> Result<Log, SecretError> {
        let opened = OpenOptions::new().append(true).open(&self.file);
        let failed = |source| SecretError::Io { what: "open", file: self.file.clone(), source };
        Ok(Log::new(opened.map_err(failed)?, end))
    }

    fn objects(&self) -> std::sync::RwLockReadGuard<'_, Objects> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn objects_mut(&self) -> std::sync::RwLockWriteGuard<'_, Objects> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn new(opened: File, end: Position) -> Self {
        Self { opened, end, enough: end.length + end.length.max(GROWTH) }
    }
}

/// The same error once more: each caller gets one.
fn again(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// The system frees it when the process ends, however it ends.
fn lock(file: &Path) -> Result<Lock, SecretError> {
    let failed = |source| SecretError::Io { what: "lock", file: file.to_owned(), source };
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(file).map_err(failed)?;
    match opened.try_lock() {
        Ok(()) => Ok(Lock(opened)),
        Err(TryLockError::Error(source)) => Err(failed(source)),
        Err(TryLockError::WouldBlock) => Err(failed(io::ErrorKind::WouldBlock.into())),
    }
}

fn load(cipher: &Cipher, file: &Path, key_file: &Path) -> Result<log::Content, SecretError> {
    let failed = |source| SecretError::Io { what: "read", file: file.to_owned(), source };
    let store = file.to_owned();
    let opened = match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(log::Content { objects: Objects::new(), end: None, torn: 0 });
        }
        other => other.map_err(failed)?,
    };
    let mut bytes = Vec::new();
    opened.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(SecretError::Damaged { store, what: "it is larger than any that was written" });
    }
    log::read(cipher, &bytes).map_err(|unreadable| match unreadable {
        Unreadable::Damaged(what) => SecretError::Damaged { store, what },
        Unreadable::Newer(found) => SecretError::FormatNewer { store, found, known: FORMAT },
        Unreadable::OtherKey => SecretError::KeyForeign { file: key_file.to_owned(), store },
    })
}

#[cfg(test)]
mod tests;
