//! How states, times and counts are shown: one place decides word, colour and shape.

use std::borrow::Borrow;
use std::fmt;
use std::time::Duration;

use askama::filters::HtmlSafe;
use lattice_api::fleet::Severity;
use lattice_api::job::StageProgress;
use lattice_api::node::TimelineSource;
use lattice_core::agent::task::TaskStatus;
use lattice_core::allocation::AllocationStatus;
use lattice_core::batch::BatchStatus;
use lattice_core::job::JobStatus;
use lattice_core::node::{Availability, PowerFact, Status};
use lattice_core::site::SiteStatus;
use lattice_core::time::{Timestamp, human};
use lattice_core::webhook::WebhookStatus;

/// The stylesheet's name of what a thing means: colour and shape together, so that neither speaks alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Ok,
    /// Under way.
    Info,
    /// It may need somebody.
    Warn,
    /// It needs somebody.
    Bad,
    /// Out of use, on purpose or not known.
    Off,
}

impl Tone {
    /// The class in the stylesheet.
    pub const fn class(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Bad => "bad",
            Self::Off => "off",
        }
    }
}

/// What an inventory status means to somebody who looks at the fleet.
pub const fn of_status(status: &Status) -> Tone {
    match status {
        Status::Active => Tone::Ok,
        Status::BootstrapIssued | Status::Enrolling => Tone::Info,
        Status::Offline | Status::Quarantined => Tone::Bad,
        Status::Draining | Status::Removing => Tone::Warn,
        Status::Retired | Status::Deleted => Tone::Off,
    }
}

/// What an availability means.
pub const fn of_availability(availability: &Availability) -> Tone {
    match availability {
        Availability::Ready => Tone::Ok,
        Availability::Booting => Tone::Info,
        Availability::Degraded | Availability::Draining => Tone::Warn,
        Availability::Down | Availability::Failed => Tone::Bad,
        Availability::Unknown | Availability::Drained => Tone::Off,
    }
}

/// What a job's status means.
pub const fn of_job(status: &JobStatus) -> Tone {
    match status {
        JobStatus::Completed | JobStatus::Reconciled => Tone::Ok,
        JobStatus::Pending | JobStatus::Running => Tone::Info,
        JobStatus::FailedRetryable | JobStatus::Compensating => Tone::Warn,
        JobStatus::FailedManualIntervention => Tone::Bad,
        JobStatus::Cancelled => Tone::Off,
    }
}

/// What an allocation's status means.
pub const fn of_allocation(status: &AllocationStatus) -> Tone {
    match status {
        AllocationStatus::Active => Tone::Ok,
        AllocationStatus::Requested | AllocationStatus::Provisioning | AllocationStatus::Releasing => Tone::Info,
        AllocationStatus::Released => Tone::Off,
        AllocationStatus::Failed => Tone::Bad,
    }
}

/// What a batch's status means.
pub const fn of_batch(status: &BatchStatus) -> Tone {
    match status {
        BatchStatus::Completed => Tone::Ok,
        BatchStatus::Pending | BatchStatus::Running => Tone::Info,
        BatchStatus::Paused | BatchStatus::Cancelling | BatchStatus::PartialFailure => Tone::Warn,
        BatchStatus::Failed => Tone::Bad,
        BatchStatus::Cancelled => Tone::Off,
    }
}

/// What a webhook's status means, with so many attempts in a row that failed.
pub const fn of_webhook(status: &WebhookStatus, failed: &u32) -> Tone {
    match status {
        WebhookStatus::Enabled if *failed > 0 => Tone::Warn,
        WebhookStatus::Enabled => Tone::Ok,
        WebhookStatus::Disabled => Tone::Off,
        WebhookStatus::GaveUp => Tone::Bad,
    }
}

/// What an incident's severity means.
pub const fn of_severity(severity: &Severity) -> Tone {
    match severity {
        Severity::Warning => Tone::Warn,
        Severity::Critical => Tone::Bad,
    }
}

/// What a site's status means.
pub const fn of_site(status: &SiteStatus) -> Tone {
    match status {
        SiteStatus::Active => Tone::Ok,
        SiteStatus::Disabled => Tone::Off,
    }
}

/// The mark of a stage, and what a screen reader says for it.
pub const fn of_stage(progress: &StageProgress) -> (&'static str, &'static str) {
    match progress {
        StageProgress::Pending => ("·", "not reached"),
        StageProgress::Running => ("▸", "running"),
        StageProgress::Succeeded => ("✓", "done"),
        StageProgress::Skipped => ("–", "nothing to do"),
        StageProgress::Failed => ("✕", "failed"),
        StageProgress::Compensated => ("↶", "undone"),
    }
}

/// Who says a row of a timeline.
pub const fn of_source(source: &TimelineSource) -> &'static str {
    match source {
        TimelineSource::Node => "node",
        TimelineSource::Job => "job",
        TimelineSource::Provider => "provider",
        TimelineSource::Audit => "audit",
        TimelineSource::Task => "task",
    }
}

/// A state as a labelled mark.
#[derive(Debug, Clone, Copy)]
pub struct Pill<T> {
    tone: Tone,
    word: T,
}

/// A mark for a word of ours: only our enums, whose names need no escaping, become one.
pub fn pill<T: fmt::Display + HtmlSafeWord>(tone: impl Borrow<Tone>, word: &T) -> Pill<&T> {
    Pill { tone: *tone.borrow(), word }
}

/// An enum of ours, whose spelling is snake_case ASCII.
pub trait HtmlSafeWord {}
impl HtmlSafeWord for Status {}
impl HtmlSafeWord for Availability {}
impl HtmlSafeWord for JobStatus {}
impl HtmlSafeWord for SiteStatus {}
impl HtmlSafeWord for BatchStatus {}
impl HtmlSafeWord for WebhookStatus {}
impl HtmlSafeWord for AllocationStatus {}
impl HtmlSafeWord for TaskStatus {}
impl HtmlSafeWord for PowerFact {}

impl<T: fmt::Display> fmt::Display for Pill<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<span class=\"pill {}\">{}</span>", self.tone.class(), self.word)
    }
}
impl<T: fmt::Display> HtmlSafe for Pill<T> {}

/// A point in time with its distance from the page's moment; the script keeps the distance up to date.
#[derive(Debug, Clone, Copy)]
pub struct When {
    at: Timestamp,
    now: Timestamp,
    ending: &'static str,
}

/// `41 s ago`.
pub const fn ago(at: &Timestamp, now: &Timestamp) -> When {
    When { at: *at, now: *now, ending: " ago" }
}

/// `41 s`: how long something is so already.
pub const fn lasting(at: &Timestamp, now: &Timestamp) -> When {
    When { at: *at, now: *now, ending: "" }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, now, ending } = self;
        if at > now {
            return write!(
                f,
                "<time datetime=\"{at}\" title=\"{at}\" data-tick=\"until\">in {}</time>",
                span(at.since(*now))
            );
        }
        let tick = if ending.is_empty() { "lasting" } else { "ago" };
        let text = span(now.since(*at));
        write!(f, "<time datetime=\"{at}\" title=\"{at}\" data-tick=\"{tick}\">{text}{ending}</time>")
    }
}
impl HtmlSafe for When {}

/// A duration for people, in whole seconds: the script shows the same words.
pub fn span(duration: Duration) -> String {
    if duration < Duration::from_secs(10) { format!("{} s", duration.as_secs()) } else { human(duration) }
}

/// `12:31:07` in UTC, with the whole time to be read by machines and on hover.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Timestamp);

/// Of a row in a timeline.
pub const fn clock(at: &Timestamp) -> Clock {
    Clock(*at)
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        let short = text.get(11..19).unwrap_or(&text);
        write!(f, "<time datetime=\"{text}\" title=\"{text}\">{short}</time>")
    }
}
impl HtmlSafe for Clock {}

/// A duration in milliseconds, for people.
pub fn took(ms: u64) -> String {
    human(Duration::from_millis(ms))
}

/// `1,284`.
pub fn count(number: impl Borrow<u64>) -> String {
    let digits = number.borrow().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 node`, `2 nodes`.
pub fn many(number: impl Borrow<u64>, noun: &str) -> String {
    let number = *number.borrow();
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `failed_manual_intervention` reads "failed manual intervention".
pub fn plain(word: impl fmt::Display) -> String {
    word.to_string().replace('_', " ")
}

/// The start of an id, long enough to tell rows of a page apart: version 7 ids begin with the time, so the end counts.
pub fn short_id(id: impl fmt::Display) -> String {
    let text = id.to_string();
    match (text.get(..8), text.get(text.len().saturating_sub(4)..)) {
        (Some(head), Some(tail)) if text.len() > 14 => format!("{head}…{tail}"),
        (_, _) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ids_are_short_and_readable() {
        assert_eq!([count(7), count(999), count(1_284), count(1_000_000)], ["7", "999", "1,284", "1,000,000"]);
        assert_eq!((many(1, "node"), many(2, "node")), ("1 node".to_owned(), "2 nodes".to_owned()));
        assert_eq!(short_id("01920000-0000-7000-8000-00000000a4f2"), "01920000…a4f2");
    }

    #[test]
    fn a_time_shows_its_distance_and_keeps_the_exact_value() {
        let now = Timestamp::from_millis(1_763_712_764_000);
        let earlier = Timestamp::from_millis(1_763_712_723_000);
        let text = ago(&earlier, &now).to_string();
        assert!(text.contains(">41 s ago<") && text.contains("2025-11-21T08:12:03.000Z"), "{text}");
        assert!(ago(&now, &earlier).to_string().contains("data-tick=\"until\">in 41 s<"));
    }
}
