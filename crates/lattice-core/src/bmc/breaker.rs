//! When a credential that a BMC refused must not be tried again, so that nothing locks an account out.
//! design: 8-interfaces "Security"

use serde::{Deserialize, Serialize};

use crate::explain::{Code, Explain, NextAction};
use crate::time::Timestamp;

/// Refusals in a row after which a credential is not tried any more: BMCs lock an account after five as a rule.
pub const REFUSALS: u32 = 3;

/// Tells one credential of a BMC from another without being one: a digest, kept in memory alone.
#[derive(Clone, PartialEq, Eq)]
pub struct CredentialMark(pub String);

/// Whether a BMC's credential is tried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum BreakerState {
    /// It is tried.
    #[default]
    Closed,
    /// It is not tried: every call is refused here, without a word to the BMC.
    Open {
        /// Since when.
        since: Timestamp,
        /// Whose call was refused last.
        by: String,
    },
    /// Another credential is there since: one call tries it.
    HalfOpen {
        /// Since when the one before was not tried any more.
        since: Timestamp,
    },
}

/// The breaker of one BMC, shared by all who call it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Breaker {
    state: BreakerState,
    refusals: u32,
    refused: Option<CredentialMark>,
}

/// The credential was refused too often.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "its credential was refused {refusals} times, the last time by a call of {by} at {since}: it is not tried any more"
)]
pub struct BreakerOpen {
    /// How often.
    pub refusals: u32,
    /// Whose call was refused last.
    pub by: String,
    /// When.
    pub since: Timestamp,
}

impl Breaker {
    /// A breaker as it was found in the store: which credential was refused is not known there.
    pub const fn restored(state: BreakerState, refusals: u32) -> Self {
        Self { state, refusals, refused: None }
    }

    /// Where it stands.
    pub const fn state(&self) -> &BreakerState {
        &self.state
    }

    /// Refusals in a row.
    pub const fn refusals(&self) -> u32 {
        self.refusals
    }

    /// Asks whether a call with this credential may be made.
    ///
    /// # Errors
    /// It was refused too often, and is the same still, as far as is known.
    pub fn admit(&mut self, mark: &CredentialMark) -> Result<(), BreakerOpen> {
        let changed = self.refused.as_ref().is_some_and(|refused| refused != mark);
        match &self.state {
            BreakerState::Closed if changed => self.refusals = 0,
            BreakerState::Open { since, .. } if changed => self.state = BreakerState::HalfOpen { since: *since },
            BreakerState::Closed | BreakerState::HalfOpen { .. } => {}
            BreakerState::Open { since, by } => {
                return Err(BreakerOpen { refusals: self.refusals, by: by.clone(), since: *since });
            }
        }
        Ok(())
    }

    /// The BMC refused this credential in a call of `by`.
    pub fn refused(&mut self, mark: &CredentialMark, by: &str, now: Timestamp) {
        self.refusals += 1;
        self.refused = Some(mark.clone());
        let half_open = matches!(self.state, BreakerState::HalfOpen { .. });
        if half_open || self.refusals >= REFUSALS {
            self.state = BreakerState::Open { since: now, by: by.to_owned() };
        }
    }

    /// The BMC took the credential.
    pub fn accepted(&mut self) {
        *self = Self::default();
    }

    /// An operator says that it may be tried again, or stored another one.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

impl Explain for BreakerOpen {
    fn code(&self) -> Code {
        Code::SiteCredentials
    }
    fn because(&self) -> Vec<String> {
        vec![self.to_string()]
    }
    fn next_actions(&self) -> Vec<NextAction> {
        let what = "store the BMC's right credential: \
                    `lattice node bmc set NODE --address ADDRESS --protocol redfish --from-stdin`; or have the same one \
                    tried again: `lattice node bmc reset-breaker NODE`";
        vec![NextAction::Fix { what: what.to_owned() }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(text: &str) -> CredentialMark {
        CredentialMark(text.to_owned())
    }
    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }
    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        for ms in 1..=3 {
            assert!(breaker.admit(&mark("old")).is_ok());
            breaker.refused(&mark("old"), "health poll", at(ms));
        }
        breaker
    }

    #[test]
    fn three_refusals_open_it_and_it_says_who_and_when() {
        let refused = opened().admit(&mark("old")).unwrap_err();
        assert_eq!(refused, BreakerOpen { refusals: 3, by: "health poll".to_owned(), since: at(3) });
    }

    #[test]
    fn a_success_between_starts_the_count_anew() {
        let mut breaker = Breaker::default();
        for _ in 0..5 {
            breaker.refused(&mark("old"), "poll", at(1));
            breaker.refused(&mark("old"), "poll", at(2));
            breaker.accepted();
        }
        assert_eq!((breaker.state(), breaker.refusals()), (&BreakerState::Closed, 0));
    }

    #[test]
    fn only_another_credential_half_opens_it_and_one_more_refusal_opens_it_again() {
        let mut breaker = opened();
        assert!(breaker.admit(&mark("new")).is_ok());
        assert_eq!(breaker.state(), &BreakerState::HalfOpen { since: at(3) });
        breaker.refused(&mark("new"), "job", at(9));
        assert_eq!(breaker.state(), &BreakerState::Open { since: at(9), by: "job".to_owned() });
        assert!(breaker.admit(&mark("new")).is_err());
        assert!(breaker.admit(&mark("newer")).is_ok());
        breaker.accepted();
        assert!(breaker.admit(&mark("old")).is_ok());
    }

    #[test]
    fn after_a_restart_only_a_reset_closes_it() {
        let mut breaker = Breaker::restored(opened().state().clone(), 3);
        assert!(breaker.admit(&mark("new")).is_err());
        breaker.reset();
        assert!(breaker.admit(&mark("old")).is_ok());
    }
}
