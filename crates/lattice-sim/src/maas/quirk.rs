//! Where MAAS behaves unlike a client author would guess, each with a switch and a count.

use std::collections::{BTreeMap, BTreeSet};

macro_rules! quirks {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// A behaviour of MAAS that surprises clients. spec: MAAS contract sections 2, 3, 6, 7.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Quirk { $($(#[doc = $doc])+ $name,)+ }

        impl Quirk {
            /// Every quirk, in the order of the contract.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The stable snake_case name used in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

quirks! {
    /// A nonce seen before for the same token gives 401, even on a retry. Off: nonces are not kept.
    NonceReuseRefused = "nonce_reuse_refused",
    /// Only a timestamp in the past is refused; one far in the future passes. Off: both are refused.
    FutureTimestampAccepted = "future_timestamp_accepted",
    /// Missing or foreign credentials give 400 `Unrecognised signature` where an anonymous handler exists. Off: 401.
    UnrecognisedSignature = "unrecognised_signature",
    /// 401 is text/html with one sentence. Off: text/plain.
    UnauthorisedIsHtml = "unauthorised_is_html",
    /// 403 has an empty body. Off: a sentence.
    EmptyForbidden = "empty_forbidden",
    /// 409 with `Retry-After` means "send again", without it "wrong state". Off: 503 with `Retry-After`.
    RetryableConflict = "retryable_conflict",
    /// POST create answers 200. Off: 201.
    CreateIs200 = "create_is_200",
    /// Power operations documented as 204 answer 200 with the machine. Off: 204.
    PowerOpReturnsBody = "power_op_returns_body",
    /// Event dates are not ISO 8601. Off: RFC 3339.
    NonIsoDates = "non_iso_dates",
    /// A path without its trailing slash is unknown. Off: it is accepted.
    TrailingSlashRequired = "trailing_slash_required",
    /// Create commissions unless told not to. Off: it does not.
    CommissionDefaultsTrue = "commission_defaults_true",
    /// A used MAC gives 400, so create is not idempotent. Off: the machine that exists is returned.
    DuplicateMacRefused = "duplicate_mac_refused",
    /// Deploy from Ready allocates by itself. Off: 409 until allocated.
    ImplicitAllocate = "implicit_allocate",
    /// A deploy refused for lack of a network link leaves the machine Allocated. Off: it goes back to Ready.
    RefusedDeployStaysAllocated = "refused_deploy_stays_allocated",
    /// Deployed is set when user-data is fetched, before cloud-init is done. Off: when cloud-init is done.
    DeployedBeforeReady = "deployed_before_ready",
    /// A manual power type answers `unknown`. Off: the true state.
    ManualPowerUnknown = "manual_power_unknown",
    /// `power_on` on a running IPMI machine power-cycles it. Off: nothing happens.
    PowerOnCycles = "power_on_cycles",
    /// `query_power_state` blocks while the BMC does not answer. Off: it fails at once.
    PowerQueryBlocks = "power_query_blocks",
    /// Erase at release is shown as Releasing. Off: Disk erasing.
    EraseShowsReleasing = "erase_shows_releasing",
    /// Release on Ready or Releasing answers 200 and does nothing. Off: 409.
    ReleaseIsNoop = "release_is_noop",
    /// `mark_broken` on a machine without this owner is 403. Off: an admin may.
    MarkBrokenNeedsOwner = "mark_broken_needs_owner",
    /// Leaving rescue mode from a failed status hangs in Exiting rescue mode. Off: it ends.
    ExitRescueHangs = "exit_rescue_hangs",
    /// The machine token is null until a preseed was rendered. Off: it always exists.
    TokenNullBeforePreseed = "token_null_before_preseed",
    /// `get_curtin_config` outside a deployment is 400 with YAML text. Off: 409.
    CurtinConfigIsYaml400 = "curtin_config_is_yaml_400",
    /// Power parameters come back with their secrets in clear. Off: they are masked.
    SecretsInClear = "secrets_in_clear",
    /// `next_uri` of an events page is never null. Off: null on the last page.
    EventsNextUriNeverNull = "events_next_uri_never_null",
    /// Tagging unknown machines answers 200 `added: 0`. Off: 404.
    TagUnknownAddsZero = "tag_unknown_adds_zero",
    /// One resource pool is at the singular `resourcepool/{id}/`. Off: the plural works as well.
    PoolPathSingular = "pool_path_singular",
    /// Listing takes time for each machine it returns. Off: it is instant.
    SlowList = "slow_list",
    /// A gateway gives 504 while the operation goes on. Off: the answer is passed on.
    GatewayTimeoutWorksOn = "gateway_timeout_works_on",
}

/// Which quirks are on, and how often each was met.
#[derive(Debug, Clone)]
pub struct Quirks {
    off: BTreeSet<Quirk>,
    hits: BTreeMap<Quirk, u64>,
}

impl Quirks {
    /// Every quirk on: MAAS as it is.
    pub const fn on() -> Self {
        Self { off: BTreeSet::new(), hits: BTreeMap::new() }
    }

    /// Every quirk off: MAAS as one would wish it.
    pub fn off() -> Self {
        Self { off: Quirk::ALL.iter().copied().collect(), hits: BTreeMap::new() }
    }

    /// Turns one quirk off.
    #[must_use]
    pub fn without(mut self, quirk: Quirk) -> Self {
        self.off.insert(quirk);
        self
    }

    /// Whether `quirk` shapes this answer; counts it when it does.
    pub(super) fn meet(&mut self, quirk: Quirk) -> bool {
        if self.off.contains(&quirk) {
            return false;
        }
        *self.hits.entry(quirk).or_default() += 1;
        true
    }

    /// How often each quirk shaped an answer; quirks never met are absent.
    pub const fn hits(&self) -> &BTreeMap<Quirk, u64> {
        &self.hits
    }
}
