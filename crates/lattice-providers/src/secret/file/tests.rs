//! What must hold of the file at any crash, and whoever touches it.

use std::os::unix::fs::PermissionsExt;

use lattice_core::explain::{Explain, NextAction};
use lattice_core::secret::Secret;

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
    assert_eq!(super::super::read_field(&store, &path("kv/site/power"), "user").await.ok().unwrap().expose(), "root");
    let missing = super::super::read_field(&store, &path("kv/site/power"), "token").await.err().unwrap();
    assert_eq!(missing.to_string(), "the secret at kv/site/power has no field `token`");
}

#[tokio::test]
async fn a_deleted_secret_is_gone_and_deleting_twice_is_no_error() {
    let place = filled().await;
    let store = place.open().unwrap();
    store.delete(&path("kv/site/power")).await.unwrap();
    store.delete(&path("kv/site/power")).await.unwrap();
    drop(store);
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
    bytes[9] = 3;
    std::fs::write(place.file(), bytes).unwrap();
    assert!(place.error().contains("has format 3, this version reads up to 2"), "{}", place.error());
}

#[tokio::test]
async fn a_write_that_died_before_its_rename_leaves_the_old_content() {
    let place = filled().await;
    std::fs::write(place.file().with_extension("new"), b"half a fi").unwrap();
    let store = place.open().unwrap();
    assert_eq!(store.read(&path("kv/site/power")).await.unwrap()["user"].expose(), "root");
    store.write(&path("kv/other"), object(&[("token", "a:b:c")])).await.unwrap();
    drop(store);
    assert_eq!(place.open().unwrap().read(&path("kv/other")).await.unwrap()["token"].expose(), "a:b:c");
}

/// A snapshot and three groups: the file's length after each of them.
async fn grown() -> (Place, Vec<usize>) {
    let place = filled().await;
    let store = place.open().unwrap();
    let mut ends = vec![std::fs::read(place.file()).unwrap().len()];
    for number in 0..3 {
        store.write(&path(&format!("kv/{number}")), object(&[("token", "a:b:c")])).await.unwrap();
        ends.push(std::fs::read(place.file()).unwrap().len());
    }
    (place, ends)
}

async fn count(place: &Place) -> (usize, usize) {
    let store = place.open().unwrap();
    let mut found = 0;
    for number in 0..3 {
        found += usize::from(store.read(&path(&format!("kv/{number}"))).await.is_ok());
    }
    assert!(store.read(&path("kv/site/power")).await.is_ok());
    (found, store.torn_bytes())
}

#[tokio::test]
async fn a_tail_torn_at_any_length_costs_only_the_unfinished_write() {
    let (place, ends) = grown().await;
    let whole = std::fs::read(place.file()).unwrap();
    for length in (ends[0]..=whole.len()).step_by(7).chain(ends.clone()) {
        std::fs::write(place.file(), &whole[..length]).unwrap();
        let kept = ends.iter().filter(|end| **end <= length).count() - 1;
        assert_eq!(count(&place).await, (kept, length - ends[kept]), "cut at {length}");
        // What was torn was cleared away: the next start finds a whole file.
        assert_eq!(count(&place).await, (kept, 0), "cut at {length}, started again");
    }
}

#[tokio::test]
async fn sectors_that_never_reached_the_disk_cost_only_the_unfinished_write() {
    let (place, ends) = grown().await;
    let whole = std::fs::read(place.file()).unwrap();
    for lost in (ends[2]..whole.len()).step_by(16) {
        let mut scattered = whole.clone();
        let end = whole.len().min(lost + 16);
        scattered[lost..end].fill(0);
        std::fs::write(place.file(), scattered).unwrap();
        assert_eq!(count(&place).await.0, 2, "zeros at {lost}");
    }
}

#[tokio::test]
async fn a_flipped_bit_before_the_last_write_is_damage_and_not_a_torn_tail() {
    let (place, ends) = grown().await;
    let whole = std::fs::read(place.file()).unwrap();
    for index in 0..ends[2] {
        let mut changed = whole.clone();
        changed[index] ^= 0x40;
        std::fs::write(place.file(), changed).unwrap();
        assert!(place.open().is_err(), "byte {index}");
    }
}

#[tokio::test]
async fn frames_left_out_or_exchanged_are_damage() {
    let (place, ends) = grown().await;
    let whole = std::fs::read(place.file()).unwrap();
    let frame = |number: usize| &whole[ends[number]..ends[number + 1]];
    for frames in [[frame(1), frame(2)], [frame(1), frame(0)], [frame(0), frame(2)], [frame(2), frame(1)]] {
        std::fs::write(place.file(), [&whole[..ends[0]], frames[0], frames[1]].concat()).unwrap();
        assert!(place.error().contains("is damaged"), "{}", place.error());
    }
}

#[tokio::test]
async fn what_was_removed_leaves_the_file_and_the_file_stays_small() {
    let place = filled().await;
    let store = place.open().unwrap();
    let long = "s".repeat(8_000);
    for number in 0..100 {
        let path = path(&format!("jobs/{}/bootstrap", number % 10));
        store.write(&path, object(&[("token", &long)])).await.unwrap();
        store.delete(&path).await.unwrap();
    }
    let size = || std::fs::metadata(place.file()).unwrap().len();
    assert!(size() < 2 * GROWTH, "{} bytes", size());
    drop(store);
    drop(place.open().unwrap());
    assert!(size() < 1_000, "{} bytes after a start", size());
}

#[tokio::test]
async fn many_writers_at_once_are_all_durable_when_they_are_answered() {
    let place = filled().await;
    let store = Arc::new(place.open().unwrap());
    let writers = (0..500).map(|number| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let path = path(&format!("jobs/{number}/bootstrap"));
            store.write(&path, object(&[("token", "first")])).await.unwrap();
            store.write(&path, object(&[("token", &number.to_string())])).await.unwrap();
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    drop(Arc::into_inner(store).expect("the writers are done"));
    let store = place.open().unwrap();
    for number in 0..500 {
        let read = store.read(&path(&format!("jobs/{number}/bootstrap"))).await.unwrap();
        assert_eq!(read["token"].expose(), &number.to_string());
    }
}

#[tokio::test]
async fn a_file_of_the_first_format_is_read_and_written_anew() {
    let place = Place::new();
    let cipher = key::read_or_make(&place.key(), &place.file()).unwrap();
    let mut text = br#"{"kv/site/power":{"user":"root"}}"#.to_vec();
    let mut bytes = [b"LATSECR\n".as_slice(), &[0, 1], &cipher.id(), &[7; 12]].concat();
    bytes.extend_from_slice(&(text.len() as u64 + 16).to_be_bytes());
    cipher.seal([7; 12], &bytes, &mut text);
    std::fs::write(place.file(), [bytes, text].concat()).unwrap();
    for _ in 0..2 {
        let store = place.open().unwrap();
        assert_eq!(store.read(&path("kv/site/power")).await.unwrap()["user"].expose(), "root");
    }
    assert_eq!(std::fs::read(place.file()).unwrap()[9], 2);
}

#[tokio::test]
async fn a_second_process_is_refused() {
    let place = filled().await;
    let _first = place.open().unwrap();
    let error = place.open().err().expect("a refusal");
    assert!(error.to_string().starts_with("cannot lock "), "{error}");
    let advice = error.next_actions();
    let [NextAction::Fix { what }] = advice.as_slice() else { panic!("no advice") };
    assert!(what.starts_with("stop the other server that has "), "{what}");
}
