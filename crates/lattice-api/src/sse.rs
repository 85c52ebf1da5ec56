//! Server-sent events, as far as this API uses them: framing on one side, parsing on the other.

use crate::event::Event;

/// Media type of a stream.
pub const EVENT_STREAM: &str = "text/event-stream";

/// Pause after which a stream without events sends a comment, in milliseconds: proxies close what is silent for a
/// minute.
pub const KEEPALIVE_MS: u64 = 15_000;

/// The comment that keeps a silent stream open.
pub const KEEPALIVE: &str = ": alive\n\n";

/// One event as it stands on the stream: its place is the id, its name the type, its JSON the data.
pub fn frame(event: &Event) -> String {
    let data = serde_json::to_string(event).expect("an event has only text keys");
    format!("id: {}\nevent: {}\ndata: {data}\n\n", event.seq.0, event.name)
}

/// Cuts a stream into events. Bytes come in as they arrive, in pieces of any size.
#[derive(Debug, Default)]
pub struct Parser {
    rest: Vec<u8>,
    data: String,
}

/// A line of a stream that is not an event of this API.
#[derive(Debug, thiserror::Error)]
#[error("the event stream holds something that is not an event")]
pub struct BadEvent(#[from] serde_json::Error);

impl Parser {
    /// Takes in some bytes and gives the events that are complete by then.
    ///
    /// # Errors
    /// The data of an event is not the JSON of an [`Event`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, BadEvent> {
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]);
            let line = line.trim_end_matches('\r');
            if line.is_empty() {
                if !self.data.is_empty() {
                    events.push(serde_json::from_str(&std::mem::take(&mut self.data))?);
                }
            } else if let Some(data) = line.strip_prefix("data:") {
                self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
            }
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use lattice_core::ids::EventSeq;
    use lattice_core::time::Timestamp;

    use super::*;

    #[test]
    fn events_survive_a_stream_that_is_cut_anywhere() {
        let event = |seq| Event {
            seq: EventSeq(seq),
            at: Timestamp::from_millis(1_763_712_764_123),
            name: "node.moved".into(),
            resource_kind: "node".into(),
            resource_id: "x".into(),
            node: None,
            correlation: "y".into(),
            payload: serde_json::json!({"hostname": "c07u43", "detail": "ä\nb"}),
        };
        let stream = format!("{}{KEEPALIVE}{}", frame(&event(7)), frame(&event(8)));
        for size in 1..stream.len() {
            let mut parser = Parser::default();
            let mut seen = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                seen.extend(parser.push(piece).unwrap());
            }
            assert_eq!(seen, [event(7), event(8)], "pieces of {size}");
        }
    }
}
