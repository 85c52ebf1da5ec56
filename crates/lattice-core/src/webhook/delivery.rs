//! How far a webhook is, and what an attempt to deliver leads to: the next event, a pause, or an end.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{EventSeq, Generation, WebhookId};
use crate::time::{Timestamp, human};

/// Deliveries that are remembered of each webhook, the newest: a day of a quiet one, an hour of a busy one.
pub const DELIVERIES_KEPT: u64 = 200;
/// Pause after the first failed attempt; it doubles with each further one.
pub const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between attempts.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// A webhook that takes nothing for so long is given up: a receiver's bad day is survived, one that was taken away is not
/// asked for ever.
pub const GIVEN_UP_AFTER: Duration = Duration::from_secs(24 * 3_600);
/// And not before so many attempts in a row failed: the time alone also passes while no server runs.
pub const GIVEN_UP_ATTEMPTS: u32 = 20;
/// A webhook that takes nothing for so long is shown as an incident: shorter outages heal unseen.
pub const SHOWN_AFTER: Duration = Duration::from_secs(600);

/// How far a webhook is. Written by whoever delivers, and by operators who enable it; tells nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookProgress {
    /// Whose.
    pub webhook: WebhookId,
    /// Everything up to here was taken, or not wanted.
    pub cursor: EventSeq,
    /// Attempts in a row that failed.
    pub failed: u32,
    /// Since when nothing was taken; none while it takes what it gets.
    pub failing_since: Option<Timestamp>,
    /// Not before.
    pub next_at: Option<Timestamp>,
    /// When it took an event last.
    pub delivered_at: Option<Timestamp>,
    /// What the last failed attempt said.
    pub last_error: Option<String>,
    /// Attempts so far: the next one's place in the list of deliveries.
    pub attempts: u64,
    /// Version of the row.
    pub generation: Generation,
}

impl WebhookProgress {
    /// Of a new webhook: it gets what happens after `from`.
    pub const fn new(webhook: WebhookId, from: EventSeq) -> Self {
        Self {
            webhook,
            cursor: from,
            failed: 0,
            failing_since: None,
            next_at: None,
            delivered_at: None,
            last_error: None,
            attempts: 0,
            generation: Generation::FIRST,
        }
    }

    /// The same, to be tried at once, as if nothing had failed; from `cursor`, if it is to skip what it missed.
    #[must_use]
    pub fn again(self, cursor: Option<EventSeq>) -> Self {
        Self {
            cursor: cursor.unwrap_or(self.cursor),
            failed: 0,
            failing_since: None,
            next_at: None,
            generation: self.generation.next(),
            ..self
        }
    }

    /// The same, past events that the webhook does not want.
    #[must_use]
    pub fn past(self, cursor: EventSeq) -> Self {
        Self { cursor, generation: self.generation.next(), ..self }
    }
}

/// How one attempt to deliver ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempted {
    /// The receiver answered 2xx.
    Taken {
        /// Its status.
        status: u16,
    },
    /// The receiver answered something else. 410 means that it will never take anything again.
    Refused {
        /// Its status.
        status: u16,
        /// The beginning of its answer, without secrets; may be empty.
        said: String,
    },
    /// There was no answer.
    Failed {
        /// What happened, without secrets.
        why: String,
    },
}

impl Attempted {
    /// In a few words.
    pub fn said(&self) -> String {
        match self {
            Self::Taken { status } => format!("answered {status}"),
            Self::Refused { status, .. } if (300..400).contains(status) => {
                format!("answered {status}: redirects are not followed")
            }
            Self::Refused { status, said } if said.is_empty() => format!("answered {status}"),
            Self::Refused { status, said } => format!("answered {status}: {said}"),
            Self::Failed { why } => why.clone(),
        }
    }

    /// Its name in metrics.
    pub const fn result(&self) -> &'static str {
        match self {
            Self::Taken { .. } => "taken",
            Self::Refused { .. } => "refused",
            Self::Failed { .. } => "failed",
        }
    }

    /// Status of the answer, if there was one.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Taken { status } | Self::Refused { status, .. } => Some(*status),
            Self::Failed { .. } => None,
        }
    }

    /// What went wrong, if something did.
    pub fn error(&self) -> Option<String> {
        match self {
            Self::Taken { .. } => None,
            Self::Refused { .. } | Self::Failed { .. } => Some(self.said()),
        }
    }
}

/// One attempt, as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Delivery {
    /// Its number, from 0.
    pub number: u64,
    /// Which event.
    #[schema(value_type = u64)]
    pub event: EventSeq,
    /// That event's name.
    pub name: String,
    /// Which attempt for it, from 1.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// Status of the answer; none when there was none.
    pub status: Option<u16>,
    /// What happened, when it was not taken.
    pub error: Option<String>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// Progress of a webhook, with the attempt that led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookStep {
    /// The row after the step.
    pub after: WebhookProgress,
    /// The attempt; none when events were passed that are not wanted, or an operator moved it.
    pub delivery: Option<Delivery>,
}

/// What an attempt leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct After {
    /// How far the webhook is then; not committed yet.
    pub progress: WebhookProgress,
    /// Why Lattice gives it up, if it does.
    pub given_up: Option<String>,
}

/// What an attempt at `now` to deliver the event at `seq` leads to: the next one, a pause, or an end.
pub fn after(progress: &WebhookProgress, seq: EventSeq, attempted: &Attempted, now: Timestamp) -> After {
    let counted =
        WebhookProgress { attempts: progress.attempts + 1, generation: progress.generation.next(), ..progress.clone() };
    let gone = match attempted {
        Attempted::Taken { .. } => {
            let progress = WebhookProgress {
                cursor: seq,
                failed: 0,
                failing_since: None,
                next_at: None,
                delivered_at: Some(now),
                last_error: None,
                ..counted
            };
            return After { progress, given_up: None };
        }
        Attempted::Refused { status: 410, .. } => Some("it answered 410: it takes nothing any more".to_owned()),
        Attempted::Refused { .. } | Attempted::Failed { .. } => None,
    };
    let (since, failed) = (progress.failing_since.unwrap_or(now), progress.failed.saturating_add(1));
    let silent = now.since(since);
    let too_long = (silent >= GIVEN_UP_AFTER && failed >= GIVEN_UP_ATTEMPTS)
        .then(|| format!("it took nothing for {} ({failed} attempts): {}", human(silent), attempted.said()));
    let progress = WebhookProgress {
        failed,
        failing_since: Some(since),
        next_at: Some(now + pause(progress.webhook, failed)),
        last_error: Some(attempted.said()),
        ..counted
    };
    After { progress, given_up: gone.or(too_long) }
}

/// Pause after that many failed attempts, the first one being 1: it doubles, and is spread over its second half, so that
/// webhooks whose receivers failed together do not come back together.
pub fn pause(webhook: WebhookId, failed: u32) -> Duration {
    let whole = FIRST_PAUSE.saturating_mul(1 << failed.saturating_sub(1).min(16)).min(LONGEST_PAUSE);
    // Ids are random, and different for each webhook: no other dice are needed.
    let (_, random) = webhook.uuid().as_u64_pair();
    let spread = (random ^ u64::from(failed)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    whole / 2 + whole.mul_f64(spread as f64 / 131_072.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::uuid_v7;

    const NOW: Timestamp = Timestamp::from_millis(1_763_712_000_000);

    fn id(number: u8) -> WebhookId {
        WebhookId::new(uuid_v7(NOW, [number; 10]))
    }

    fn fresh() -> WebhookProgress {
        WebhookProgress::new(id(1), EventSeq(6))
    }

    fn refused(status: u16) -> Attempted {
        Attempted::Refused { status, said: String::new() }
    }

    #[test]
    fn what_is_taken_moves_on_and_what_is_not_is_tried_again_later_each_time() {
        let taken = after(&fresh(), EventSeq(7), &Attempted::Taken { status: 204 }, NOW);
        assert_eq!((taken.progress.cursor, taken.progress.failed, taken.given_up), (EventSeq(7), 0, None));
        let mut progress = fresh();
        for (failed, whole) in (1..).zip([1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]) {
            let next = after(&progress, EventSeq(7), &refused(500), NOW);
            assert_eq!((next.progress.cursor, next.given_up), (EventSeq(6), None), "its place is kept");
            let pause = next.progress.next_at.unwrap().since(NOW).as_millis();
            assert!((whole * 500..=whole * 1_000).contains(&pause), "{failed}: {pause} ms of {whole} s");
            progress = next.progress;
        }
        let healed = after(&progress, EventSeq(7), &Attempted::Taken { status: 200 }, NOW).progress;
        assert_eq!((healed.failed, healed.failing_since, healed.next_at), (0, None, None));
    }

    #[test]
    fn webhooks_that_failed_together_do_not_come_back_together() {
        let pauses: std::collections::BTreeSet<Duration> = (1..=20).map(|number| pause(id(number), 8)).collect();
        assert!(pauses.len() > 15, "{pauses:?}");
    }

    #[test]
    fn a_receiver_that_is_gone_or_takes_nothing_for_a_day_is_given_up() {
        let gone = after(&fresh(), EventSeq(7), &refused(410), NOW);
        assert!(gone.given_up.unwrap().contains("410"));
        let dead = Attempted::Failed { why: "no connection".to_owned() };
        let mut failing = after(&fresh(), EventSeq(7), &dead, NOW).progress;
        let late = after(&failing, EventSeq(7), &dead, NOW + GIVEN_UP_AFTER);
        assert_eq!(late.given_up, None, "no server ran for a day: two attempts say little");
        failing.failed = GIVEN_UP_ATTEMPTS - 1;
        let almost = after(&failing, EventSeq(7), &dead, NOW + GIVEN_UP_AFTER - Duration::from_millis(1));
        assert_eq!(almost.given_up, None);
        let day = after(&failing, EventSeq(7), &dead, NOW + GIVEN_UP_AFTER);
        assert_eq!(
            day.given_up.as_deref(),
            Some("it took nothing for 24 h 0 min (20 attempts): no connection"),
            "{day:?}"
        );
        let again = day.progress.clone().again(None);
        assert_eq!((again.cursor, again.failed, again.failing_since), (EventSeq(6), 0, None), "nothing is lost");
        assert_eq!(day.progress.again(Some(EventSeq(99))).cursor, EventSeq(99));
    }
}
