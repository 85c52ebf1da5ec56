//! The event log and its keyset paging. spec: MAAS contract section 6, "events".

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{Answer, Call, MaasWorld};
use crate::maas::quirk::Quirk;
use crate::maas::wire::Response;

/// Events in one page unless the client says otherwise.
const DEFAULT_LIMIT: u64 = 100;
/// The most a client may ask for; above it the call is refused.
const MAX_LIMIT: u64 = 1000;

/// One line of the event log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Grows by one with each event.
    pub id: u64,
    /// The machine it is about.
    pub system_id: String,
    /// Its host name at the time.
    pub hostname: String,
    /// How grave it is.
    pub level: Level,
    /// What kind of event.
    pub kind: &'static str,
    /// The rest of the sentence.
    pub description: String,
    /// When it happened.
    pub at: Timestamp,
}

/// How grave an event is. Status changes are `Debug`, which the default query does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What a user did.
    Audit,
    /// Status changes among others.
    Debug,
    /// The least that is shown by default.
    Info,
    /// Something is off.
    Warning,
    /// Something failed.
    Error,
    /// Something is beyond repair.
    Critical,
}

const LEVELS: [(Level, &str); 6] = [
    (Level::Audit, "AUDIT"),
    (Level::Debug, "DEBUG"),
    (Level::Info, "INFO"),
    (Level::Warning, "WARNING"),
    (Level::Error, "ERROR"),
    (Level::Critical, "CRITICAL"),
];

impl Level {
    fn parse(text: &str) -> Option<Self> {
        LEVELS.iter().find(|(_, name)| name.eq_ignore_ascii_case(text)).map(|(level, _)| *level)
    }

    fn name(self) -> &'static str {
        LEVELS.iter().find(|(level, _)| *level == self).map_or("", |(_, name)| name)
    }
}

/// All events, oldest first.
#[derive(Default)]
pub(super) struct EventLog(Vec<Event>);

impl EventLog {
    pub(super) fn push(&mut self, event: Event) {
        let id = self.0.len() as u64 + 1;
        self.0.push(Event { id, ..event });
    }

    pub(super) fn all(&self) -> &[Event] {
        &self.0
    }
}

impl MaasWorld {
    /// A page of events, newest first, as MAAS does.
    pub(super) fn query_events(&mut self, call: &Call<'_>) -> Answer {
        let query = &call.request.query;
        let limit = query.number("limit").unwrap_or(DEFAULT_LIMIT);
        if limit > MAX_LIMIT {
            return Err(Response::text(400, "Requested number of events is greater than limit: 1000"));
        }
        let (after, before) = (query.number("after"), query.number("before"));
        if after.is_some() && before.is_some() {
            return Err(Response::text(400, "There is undefined behaviour when before and after are both specified."));
        }
        let text = query.text("level").unwrap_or("INFO");
        let Some(level) = Level::parse(text) else {
            return Err(Response::text(400, format!("Unrecognised log level: {text}")));
        };
        let (hostnames, ids) = (query.list("hostname"), query.list("id"));
        let wanted = |event: &&Event| {
            event.level >= level
                && (hostnames.is_empty() || hostnames.contains(&event.hostname))
                && (ids.is_empty() || ids.contains(&event.system_id))
                && before.is_none_or(|id| event.id < id)
                && after.is_none_or(|id| event.id > id)
        };
        // `after` takes the oldest that follow, everything else the newest.
        let mut page: Vec<&Event> = match after {
            // Ids are dense from 1, so that the position of the first one that follows is known.
            Some(id) => self.events.0.iter().skip(id as usize).filter(wanted).take(limit as usize).collect(),
            None => self.events.0.iter().rev().filter(wanted).take(limit as usize).collect(),
        };
        page.sort_by_key(|event| std::cmp::Reverse(event.id));
        let non_iso = page.is_empty() || self.quirks.meet(Quirk::NonIsoDates);
        let events: Vec<Value> = page.iter().map(|event| event_body(event, non_iso)).collect();
        let newest = page.first().map_or(after.unwrap_or(0), |event| event.id);
        let oldest = page.last().map_or(before.unwrap_or(0), |event| event.id);
        let more = page.len() as u64 == limit;
        let uri = |side: &str, id: u64| {
            format!("/MAAS/api/2.0/events/?op=query&limit={limit}&level={}&{side}={id}", level.name())
        };
        let next = match more && after.is_some() {
            true => json!(uri("after", newest)),
            false if self.quirks.meet(Quirk::EventsNextUriNeverNull) => json!(uri("after", newest)),
            false => Value::Null,
        };
        let body = json!({
            "count": events.len(),
            "events": events,
            "next_uri": next,
            "prev_uri": uri("before", oldest),
        });
        Ok(Response::json(200, &body))
    }
}

fn event_body(event: &Event, non_iso: bool) -> Value {
    let created = if non_iso { event_date(event.at) } else { event.at.to_string() };
    json!({
        "id": event.id,
        "node": event.system_id,
        "hostname": event.hostname,
        "level": event.level.name(),
        "type": event.kind,
        "description": event.description,
        "username": "",
        "created": created,
    })
}

/// `Sat, 21 Nov. 2026 09:37:12`: a dot after the month, no zone. Times in a machine body have this form too.
pub(in crate::maas) fn event_date(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%a, %d %b. %Y %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_dates_have_a_dot_after_the_month_and_no_zone() {
        let at: Timestamp = "2026-11-21T09:37:12.5Z".parse().expect("a time");
        assert_eq!(event_date(at), "Sat, 21 Nov. 2026 09:37:12");
    }
}
