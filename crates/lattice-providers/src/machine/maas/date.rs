//! Dates as MAAS writes them: not ISO, with or without a dot after the month, with or without a zone.

use jiff::tz::Offset;
use lattice_core::time::Timestamp;
use serde::{Deserialize, Deserializer};

/// A date of MAAS: its text, and the time when the text could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaasTime {
    /// As it came.
    pub text: String,
    /// The time it means; `None` when the text has an unknown form.
    pub at: Option<Timestamp>,
}

impl<'de> Deserialize<'de> for MaasTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Self { at: read(&text), text })
    }
}

/// Reads `Sat, 21 Nov. 2026 09:37:12`, the same with `+0000`, and RFC 3339. Without a zone it is UTC.
pub(super) fn read(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse() {
        return Some(time);
    }
    let text = text.split_once(", ").map_or(text, |(_weekday, rest)| rest);
    let mut words = text.split_whitespace();
    let (day, month, year, clock) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let seconds_east = words.next().map_or(Some(0), offset_s)?;
    let mut parts = clock.split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    let day = date_of(year.parse().ok()?, month_of(month)?, day.parse().ok()?)?;
    let (hour, minute, second): (i8, i8, i8) = (hour.parse().ok()?, minute.parse().ok()?, second.parse().ok()?);
    if !(0..24).contains(&hour) || !(0..60).contains(&minute) || !(0..60).contains(&second) {
        return None;
    }
    let time = Offset::from_seconds(seconds_east).ok()?.to_timestamp(day.at(hour, minute, second, 0)).ok()?;
    Some(Timestamp::from_millis(time.as_millisecond()))
}

fn date_of(year: i16, month: i8, day: i8) -> Option<jiff::civil::Date> {
    let plausible = (1970..=9999).contains(&year) && (1..=31).contains(&day);
    plausible.then(|| jiff::civil::Date::new(year, month, day).ok()).flatten()
}

fn month_of(text: &str) -> Option<i8> {
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let short = text.get(..3)?.to_ascii_lowercase();
    let index = MONTHS.iter().position(|month| *month == short)?;
    i8::try_from(index + 1).ok()
}

fn offset_s(text: &str) -> Option<i32> {
    if matches!(text, "UTC" | "GMT" | "Z") {
        return Some(0);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let digits = text.strip_prefix(['+', '-'])?;
    let (hours, minutes) = digits.split_at_checked(2)?;
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.trim_start_matches(':').parse().ok()?);
    Some(sign * (hours * 3_600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_that_was_seen_is_read() {
        for (text, want) in [
            ("Sat, 21 Nov. 2026 09:37:12", Some("2026-11-21T09:37:12.000Z")),
            ("Sat, 21 Nov 2026 09:37:12 +0000", Some("2026-11-21T09:37:12.000Z")),
            ("Sat, 21 Nov 2026 09:37:12 -0130", Some("2026-11-21T11:07:12.000Z")),
            ("2026-11-21T09:37:12.5Z", Some("2026-11-21T09:37:12.500Z")),
            ("Fri, 1 May. 2026 00:00:00", Some("2026-05-01T00:00:00.000Z")),
            ("", None),
            ("now", None),
            ("Sat, 31 Feb. 2026 09:37:12", None),
            ("Sat, 21 Nov. 2026 29:37:12", None),
            ("Sat, 21 Nóv. 2026 09:37:12", None),
            ("Sat, 21 Nov. 2026 09:37:12 +é00", None),
        ] {
            assert_eq!(read(text).map(|time| time.to_string()).as_deref(), want, "{text}");
        }
    }
}
