//! Hears of events that other servers committed. Only wakes: what is new is read from the outbox.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use lattice_core::ids::EventSeq;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};

use crate::last::Advance;

/// Channel of the notifications.
pub(super) const CHANNEL: &str = "lattice_events";
/// Pause before it connects anew: followers are late by this much at most after a lost connection.
const RECONNECT: Duration = Duration::from_secs(1);

/// Listens until the store is dropped.
pub(super) async fn run(config: Config, last: Arc<Advance>) {
    loop {
        if let Err(error) = listen(&config, &last).await {
            tracing::warn!(%error, "listener of events lost its connection");
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn listen(config: &Config, last: &Advance) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = config.connect(NoTls).await?;
    let mut begin = Box::pin(begin(&client));
    let mut begun = false;
    loop {
        // The connection only moves while it is polled, so both are polled from here.
        let message = poll_fn(|context| {
            if !begun && let std::task::Poll::Ready(seq) = begin.as_mut().poll(context) {
                begun = true;
                if let Ok(seq) = seq {
                    last.to(seq);
                }
            }
            connection.poll_message(context)
        });
        match message.await {
            Some(Ok(AsyncMessage::Notification(note))) if note.channel() == CHANNEL => {
                if let Ok(seq) = note.payload().parse() {
                    last.to(EventSeq(seq));
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error),
            None => return Ok(()),
        }
    }
}

/// Listens first and reads then: nothing falls between the two.
async fn begin(client: &Client) -> Result<EventSeq, tokio_postgres::Error> {
    client.batch_execute(&format!("LISTEN {CHANNEL}")).await?;
    let seq: i64 = client.query_one("SELECT event_seq FROM head", &[]).await?.get(0);
    Ok(EventSeq(seq.unsigned_abs()))
}
