//! The HTTP front of a site.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::handle::{ConnectionBroken, MaasHandle};
use crate::stop::Stop;

/// Largest body a client may send: user-data with room to spare.
const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;

/// Pause after a failed accept, long enough not to spin and short enough not to be noticed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);

/// Serves the region on `listener` until stopped; connections in progress finish their answer.
pub fn serve(listener: TcpListener, site: MaasHandle) -> Stop {
    let token = CancellationToken::new();
    let stopped = token.clone();
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = stopped.cancelled() => break,
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve_connection(stream, site.clone(), stopped.clone()));
                }
                Err(error) => {
                    // Out of descriptors, as a rule: let connections end before the next try.
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
        while connections.join_next().await.is_some() {}
    });
    Stop::new(token, task)
}

async fn serve_connection(stream: TcpStream, site: MaasHandle, stopped: CancellationToken) {
    let service = service_fn(move |request| answer(request, site.clone()));
    let connection = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // An error here is the client's or a simulated break of the connection: neither concerns anybody else.
        _ended = connection.as_mut() => return,
        () = stopped.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ended = connection.await;
}

async fn answer(
    request: http::Request<Incoming>,
    site: MaasHandle,
) -> Result<http::Response<Full<Bytes>>, ConnectionBroken> {
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            let text = format!("Request body could not be read: {error}");
            return Ok(too_large(text));
        }
    };
    site.call_inline(http::Request::from_parts(parts, body)).await.map(|response| response.map(Full::new))
}

fn too_large(text: String) -> http::Response<Full<Bytes>> {
    let mut response = http::Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = http::StatusCode::PAYLOAD_TOO_LARGE;
    response
}
