//! What a machine's power was seen to be: when, by whom, and why it is not known. Unknown is never off.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::node::PowerFact;
use crate::time::Timestamp;

/// What was said of a machine's power.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "power", rename_all = "snake_case")]
pub enum PowerSaid {
    /// Positively on.
    On,
    /// Positively off.
    Off,
    /// Neither can be said.
    Unknown {
        /// Why not: no answer, a word that is neither, a change under way.
        why: String,
    },
}

/// One look at a machine's power.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PowerReading {
    /// What was said.
    #[serde(flatten)]
    pub said: PowerSaid,
    /// The answer is no older: when it was asked for, or where it comes from a store, the time that the store gives.
    pub at: Timestamp,
    /// Who said it: `redfish 10.0.0.7`, `pcs`.
    pub source: String,
}

impl PowerReading {
    /// The fact, however old.
    pub const fn fact(&self) -> PowerFact {
        match self.said {
            PowerSaid::On => PowerFact::On,
            PowerSaid::Off => PowerFact::Off,
            PowerSaid::Unknown { .. } => PowerFact::Unknown,
        }
    }

    /// The fact as evidence at `now`: one that is older than `max_age`, or of the future, proves nothing.
    pub fn fresh_fact(&self, now: Timestamp, max_age: Duration) -> PowerFact {
        if self.at <= now && now.since(self.at) <= max_age { self.fact() } else { PowerFact::Unknown }
    }
}

impl std::fmt::Display for PowerReading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.said {
            PowerSaid::On => write!(f, "on, says {}", self.source),
            PowerSaid::Off => write!(f, "off, says {}", self.source),
            PowerSaid::Unknown { why } => write!(f, "unknown ({}: {why})", self.source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(said: PowerSaid) -> PowerReading {
        PowerReading { said, at: Timestamp::from_millis(10_000), source: "redfish 10.0.0.7".to_owned() }
    }

    #[test]
    fn a_stale_reading_and_one_of_the_future_prove_nothing() {
        let off = reading(PowerSaid::Off);
        let age = Duration::from_secs(5);
        for (now, want) in [
            (10_000, PowerFact::Off),
            (15_000, PowerFact::Off),
            (15_001, PowerFact::Unknown),
            (9_999, PowerFact::Unknown),
        ] {
            assert_eq!(off.fresh_fact(Timestamp::from_millis(now), age), want, "{now}");
        }
    }

    #[test]
    fn unknown_is_never_off_and_says_why() {
        let unknown = reading(PowerSaid::Unknown { why: "no answer".to_owned() });
        assert_eq!(unknown.fact(), PowerFact::Unknown);
        assert_eq!(unknown.to_string(), "unknown (redfish 10.0.0.7: no answer)");
        let json = serde_json::to_value(&unknown).unwrap();
        assert_eq!((json["power"].as_str(), json["why"].as_str()), (Some("unknown"), Some("no answer")));
        assert_eq!(serde_json::from_value::<PowerReading>(json).unwrap(), unknown);
    }
}
