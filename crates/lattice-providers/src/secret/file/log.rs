//! The bytes of the encrypted file: a snapshot, then one frame for each group of writes.
//!
//! Layout: `LATSECR\n`, format (2 bytes), key id (8), file id (16); then frames. A frame: file id (16), number (8),
//! nonce (12), length of the rest (4), ciphertext with its tag. All that stands before the ciphertext is authenticated
//! with it, so frames cannot be left out, moved or taken from another file. Numbers are big-endian.
//!
//! Frame 0 is written with the file, which is put in place whole: it is good, or the file is damaged. Only the last
//! frame after it may be unfinished, when the power failed before anybody was told that it is durable: then it does not
//! count. A later frame is begun only once the one before is durable, so an unreadable frame with another one behind it
//! is damage. What cannot be told from an older file is one that was cut off between two frames.

use std::collections::BTreeMap;

use super::key::{Cipher, NONCE, TAG, random};
use crate::secret::SecretObject;

const MAGIC: &[u8; 8] = b"LATSECR\n";
/// The format that is written: a log.
pub(super) const FORMAT: u16 = 2;
/// The first format: one ciphertext, of JSON `{path: {name: value}}`.
const WHOLE: u16 = 1;
/// Magic, format, key id: the same in every format.
const PREFIX: usize = 18;
const ID: usize = 16;
const HEADER: usize = PREFIX + ID;
/// What stands before a frame's ciphertext.
const FRAME: usize = ID + 8 + NONCE + 4;

/// All secrets by path.
pub(super) type Objects = BTreeMap<String, SecretObject>;
/// An object for a path, or none to remove it.
pub(super) type Write = (String, Option<SecretObject>);

/// What a file holds.
pub(super) struct Content {
    /// All secrets.
    pub(super) objects: Objects,
    /// Where the file can be appended to; none when it has to be written anew first.
    pub(super) end: Option<Position>,
    /// Bytes of an unfinished write at its end.
    pub(super) torn: usize,
}

/// Where the next frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// The file that it is in.
    pub(super) file: [u8; ID],
    /// Its number.
    pub(super) number: u64,
    /// Length of the file before it, in bytes.
    pub(super) length: u64,
}

/// Why a file cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is cut short, or changed.
    Damaged(&'static str),
    /// It is of a later format.
    Newer(u16),
    /// It was sealed with another key.
    OtherKey,
}

/// A new file with these objects, and where its next frame goes.
pub(super) fn snapshot(cipher: &Cipher, objects: &Objects) -> (Vec<u8>, Position) {
    let file = random();
    let mut bytes = Vec::with_capacity(HEADER);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&FORMAT.to_be_bytes());
    bytes.extend_from_slice(&cipher.id());
    bytes.extend_from_slice(&file);
    let at = Position { file, number: 0, length: bytes.len() as u64 };
    let plain = json(objects.iter().map(|(path, object)| (path.as_str(), Some(object))));
    let (frame, next) = frame(cipher, at, plain);
    bytes.extend_from_slice(&frame);
    (bytes, next)
}

/// The frame that a group of writes appends, and where the next one goes.
pub(super) fn group(cipher: &Cipher, at: Position, writes: &[Write]) -> (Vec<u8>, Position) {
    frame(cipher, at, json(writes.iter().map(|(path, object)| (path.as_str(), object.as_ref()))))
}

/// Takes over a group of writes.
pub(super) fn apply(objects: &mut Objects, writes: impl IntoIterator<Item = Write>) {
    for (path, object) in writes {
        match object {
            Some(object) => drop(objects.insert(path, object)),
            None => drop(objects.remove(&path)),
        }
    }
}

/// Reads a whole file.
///
/// # Errors
/// See [`Unreadable`].
pub(super) fn read(cipher: &Cipher, bytes: &[u8]) -> Result<Content, Unreadable> {
    let (prefix, rest) = bytes.split_at_checked(PREFIX).ok_or(Unreadable::Damaged("it ends within its header"))?;
    if &prefix[..8] != MAGIC {
        return Err(Unreadable::Damaged("it does not begin as a secret file"));
    }
    let format = u16::from_be_bytes([prefix[8], prefix[9]]);
    if format > FORMAT {
        return Err(Unreadable::Newer(format));
    }
    if prefix[10..] != cipher.id() {
        return Err(Unreadable::OtherKey);
    }
    if format == WHOLE {
        return whole(cipher, prefix, rest);
    }
    let file = rest.first_chunk::<ID>().ok_or(Unreadable::Damaged("it ends within its header"))?;
    let mut at = Position { file: *file, number: 0, length: HEADER as u64 };
    let mut objects = Objects::new();
    let mut left = &rest[ID..];
    loop {
        let Some((writes, behind)) = next(cipher, at, left) else { break };
        let writes: Vec<Write> = serde_json::from_slice(writes.expose())
            .map_err(|_| Unreadable::Damaged("its content is not the expected JSON"))?;
        apply(&mut objects, writes);
        at.number += 1;
        at.length += (left.len() - behind.len()) as u64;
        left = behind;
    }
    let skips =
        left.starts_with(file) && left.get(ID..ID + 8).is_some_and(|number| *number > at.number.to_be_bytes()[..]);
    if at.number == 0 || skips || left.windows(ID).skip(1).any(|bytes| bytes == file) {
        return Err(Unreadable::Damaged("its content was changed or cut off"));
    }
    Ok(Content { objects, end: left.is_empty().then_some(at), torn: left.len() })
}

/// The first format: nonce, length of the rest (8 bytes), ciphertext.
fn whole(cipher: &Cipher, prefix: &[u8], rest: &[u8]) -> Result<Content, Unreadable> {
    let short = Unreadable::Damaged("it is shorter or longer than it says");
    let (nonce, rest) = rest.split_first_chunk::<NONCE>().ok_or(short)?;
    let (length, sealed) = rest.split_first_chunk::<8>().ok_or(short)?;
    if u64::from_be_bytes(*length) != sealed.len() as u64 {
        return Err(short);
    }
    let header = [prefix, nonce, length].concat();
    let plain = cipher.open(*nonce, &header, sealed).ok_or(Unreadable::Damaged("its content was changed"))?;
    let objects = serde_json::from_slice(plain.expose())
        .map_err(|_| Unreadable::Damaged("its content is not the expected JSON"))?;
    Ok(Content { objects, end: None, torn: 0 })
}

fn frame(cipher: &Cipher, at: Position, mut plain: Vec<u8>) -> (Vec<u8>, Position) {
    let nonce: [u8; NONCE] = random();
    let length = u32::try_from(plain.len() + TAG).expect("a file is smaller than 256 MiB");
    let mut bytes = Vec::with_capacity(FRAME + plain.len() + TAG);
    bytes.extend_from_slice(&at.file);
    bytes.extend_from_slice(&at.number.to_be_bytes());
    bytes.extend_from_slice(&nonce);
    bytes.extend_from_slice(&length.to_be_bytes());
    cipher.seal(nonce, &bytes, &mut plain);
    bytes.extend_from_slice(&plain);
    let next = Position { number: at.number + 1, length: at.length + bytes.len() as u64, ..at };
    (bytes, next)
}

/// The frame that begins here, opened, and what is behind it; none when there is no good one.
fn next<'a>(
    cipher: &Cipher,
    at: Position,
    bytes: &'a [u8],
) -> Option<(lattice_core::secret::Secret<Vec<u8>>, &'a [u8])> {
    let (header, rest) = bytes.split_at_checked(FRAME)?;
    let (place, rest_of_header) = header.split_at(ID + 8);
    if place[..ID] != at.file || place[ID..] != at.number.to_be_bytes() {
        return None;
    }
    let (nonce, length) = rest_of_header.split_first_chunk::<NONCE>()?;
    let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
    let (sealed, behind) = rest.split_at_checked(length)?;
    Some((cipher.open(*nonce, header, sealed)?, behind))
}

/// `[[path, {name: value}], [path, null]]`
fn json<'a>(writes: impl Iterator<Item = (&'a str, Option<&'a SecretObject>)>) -> Vec<u8> {
    let exposed: Vec<(&str, Option<BTreeMap<&str, &str>>)> = writes
        .map(|(path, object)| {
            let fields = |object: &'a SecretObject| {
                object.iter().map(|(name, value)| (name.as_str(), value.expose().as_str())).collect()
            };
            (path, object.map(fields))
        })
        .collect();
    serde_json::to_vec(&exposed).expect("lists and maps of strings are JSON")
}
