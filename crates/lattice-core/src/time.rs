//! Points in time, in milliseconds since 1970 UTC. Nothing here knows what time it is now.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time: milliseconds since 1970-01-01T00:00:00Z. Serialised as RFC 3339 with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// A text that is not an RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time: expected RFC 3339, such as 2026-11-21T09:12:44.000Z")]
pub struct InvalidTime(String);

impl Timestamp {
    /// From milliseconds since 1970 UTC.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }
    /// Milliseconds since 1970 UTC.
    pub const fn as_millis(self) -> i64 {
        self.0
    }
    /// Whole seconds since 1970 UTC.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1000)
    }
    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0).max(0) as u64)
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTime;
    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        text.parse::<jiff::Timestamp>()
            .map(|time| Self(time.as_millisecond()))
            .map_err(|_| InvalidTime(text.chars().take(64).collect()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Timestamp {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        String::schema()
    }
}
impl utoipa::ToSchema for Timestamp {}

/// Where "now" comes from. Only the process's wiring and the simulator implement it.
pub trait Clock: Send + Sync {
    /// The present time.
    fn now(&self) -> Timestamp;
}

/// A duration as a person reads it: `0.2 s`, `41 s`, `3 min`, `2 h 10 min`, `12 days`.
pub fn human(duration: Duration) -> String {
    let secs = duration.as_secs();
    match secs {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..120 => format!("{secs} s"),
        120..7_200 => format!("{} min", secs / 60),
        7_200..172_800 => format!("{} h {} min", secs / 3_600, secs % 3_600 / 60),
        172_800.. => format!("{} days", secs / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_survives_json() {
        let time = Timestamp::from_millis(1_763_712_764_123);
        let json = serde_json::to_string(&time).unwrap();
        assert_eq!(json, "\"2025-11-21T08:12:44.123Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), time);
    }

    #[test]
    fn durations_read_well() {
        let texts: Vec<_> =
            [200, 41_000, 180_000, 7_800_000, 1_036_800_000].map(|ms| human(Duration::from_millis(ms))).into();
        assert_eq!(texts, ["0.2 s", "41 s", "3 min", "2 h 10 min", "12 days"]);
    }
}
