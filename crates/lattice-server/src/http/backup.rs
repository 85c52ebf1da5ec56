//! A backup of one moment, as one file, verified before it is sent.

use std::path::PathBuf;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::header;
use lattice_core::explain::Code;
use tokio::io::AsyncReadExt;

use super::App;
use crate::error::{Answer, Refusal};

/// Media type of a backup.
pub const SQLITE: &str = "application/vnd.sqlite3";
/// Bytes sent at once.
const PIECE: usize = 256 * 1024;

/// A file that is removed when it was sent, or when nobody wants it any more.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's own cleaning.
        let _left = std::fs::remove_file(&self.0);
    }
}

/// Makes a backup beside the server and sends it piece by piece.
pub async fn download(State(app): State<App>) -> Answer<Response> {
    let name = format!("lattice-backup-{}", app.ids.uuid(app.clock.now()).simple());
    let file = Temporary(std::env::temp_dir().join(name));
    app.store.backup(&file.0).await?;
    let unreadable =
        |error: std::io::Error| Refusal::new(Code::Internal, format!("the backup cannot be read: {error}"));
    let open = tokio::fs::File::open(&file.0).await.map_err(unreadable)?;
    let length = open.metadata().await.map_err(unreadable)?.len();
    let pieces = stream::try_unfold((open, file), |(mut open, file)| async move {
        let mut piece = vec![0; PIECE];
        let read = open.read(&mut piece).await?;
        piece.truncate(read);
        Ok::<_, std::io::Error>((read > 0).then_some((piece, (open, file))))
    });
    let headers = [(header::CONTENT_TYPE, SQLITE.to_owned()), (header::CONTENT_LENGTH, length.to_string())];
    Ok((headers, Body::from_stream(pieces)).into_response())
}
