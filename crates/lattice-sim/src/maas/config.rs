//! What a simulated site is like before anyone calls it.

use std::time::Duration;

use super::faults::Faults;
use super::oauth::ApiKey;
use super::quirk::Quirks;
use crate::dice::Dice;
use crate::machine::population::Population;

/// The user whose key the site hands out.
pub const ADMIN: &str = "admin";

/// A simulated MAAS site.
#[derive(Clone)]
pub struct SiteConfig {
    /// From here come all choices.
    pub seed: u64,
    /// The machines in the racks.
    pub population: Population,
    /// How long things take.
    pub timings: Timings,
    /// Which behaviours of MAAS are on.
    pub quirks: Quirks,
    /// What happens to parameters an operation does not know.
    pub unknown_fields: UnknownFields,
    /// Who plays the machine at its first boot.
    pub first_boot: FirstBoot,
    /// What goes wrong.
    pub faults: Faults,
    /// The administrator's key.
    pub admin_key: ApiKey,
    /// Where machines reach the region; it stands in their preseed.
    pub url: String,
}

/// What happens to a parameter that an operation does not know. It is reported in either case.
///
/// Listing and allocating always refuse: MAAS does so itself. spec: MAAS contract section 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownFields {
    /// Refused with 400, so that a misspelt parameter cannot pass unseen.
    Refuse,
    /// Ignored, as MAAS does.
    Ignore,
}

/// Who fetches the user-data at the first boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstBoot {
    /// The world itself: enough for clients that only watch MAAS.
    ByWorld,
    /// A machine runner, told by an effect.
    ByRunner,
}

/// How long things take, in milliseconds unless named otherwise, before `scale` and jitter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timings {
    /// Power cycle to New in MAAS.
    pub discovery_ms: u64,
    /// Start of commissioning to Ready.
    pub commissioning_ms: u64,
    /// Start of deployment to the first boot of the installed system.
    pub deploying_ms: u64,
    /// Power on to a running system.
    pub boot_ms: u64,
    /// Start of release to Ready.
    pub releasing_ms: u64,
    /// What an erase adds to a release.
    pub erasing_ms: u64,
    /// Start of testing to its end.
    pub testing_ms: u64,
    /// Entering or leaving rescue mode.
    pub rescue_ms: u64,
    /// Until MAAS gives up on a BMC that does not answer.
    pub bmc_timeout_ms: u64,
    /// The status monitor's limit for commissioning and testing; deployments have twice as long.
    pub node_timeout_ms: u64,
    /// What each machine adds to a listing, in microseconds.
    pub list_per_machine_us: u64,
    /// Durations vary by this much around their value.
    pub jitter_percent: u64,
    /// All durations are multiplied by this.
    pub scale: f64,
}

impl Timings {
    /// One to three seconds a phase: slow enough to watch, quick enough to wait for.
    pub const fn dev() -> Self {
        Self {
            discovery_ms: 800,
            commissioning_ms: 1_500,
            deploying_ms: 2_000,
            boot_ms: 500,
            releasing_ms: 800,
            erasing_ms: 1_000,
            testing_ms: 800,
            rescue_ms: 500,
            bmc_timeout_ms: 1_500,
            node_timeout_ms: 20_000,
            list_per_machine_us: 200,
            jitter_percent: 25,
            scale: 1.0,
        }
    }

    /// The same with every duration multiplied by `scale`.
    #[must_use]
    pub const fn scaled(mut self, scale: f64) -> Self {
        self.scale = scale;
        self
    }

    /// `base_ms` as it turns out for the subject of `about`.
    pub(super) fn actual(&self, base_ms: u64, dice: Dice, about: &[u64]) -> Duration {
        let span = self.jitter_percent.min(100) * 2 + 1;
        let percent = 100 + dice.below(span, about) as i64 - self.jitter_percent.min(100) as i64;
        self.exact(base_ms).mul_f64(percent as f64 / 100.0)
    }

    /// `base_ms` without jitter.
    pub(super) fn exact(&self, base_ms: u64) -> Duration {
        Duration::from_millis(base_ms).mul_f64(self.scale.max(0.0))
    }
}

impl SiteConfig {
    /// A site of `count` machines with development timings, every quirk on, nothing broken.
    pub fn dev(seed: u64, count: u32) -> Self {
        Self {
            seed,
            population: Population::generate(seed, count),
            timings: Timings::dev(),
            quirks: Quirks::on(),
            unknown_fields: UnknownFields::Refuse,
            first_boot: FirstBoot::ByWorld,
            faults: Faults::default(),
            admin_key: generate_key(Dice(seed), 0),
            url: "http://127.0.0.1:5240/MAAS".into(),
        }
    }
}

/// The `number`th key of a site.
pub(super) fn generate_key(dice: Dice, number: u64) -> ApiKey {
    const LETTERS: &str = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
    let part = |which: u64, length| dice.word(LETTERS, length, &[0x6b65, number, which]);
    ApiKey { consumer: part(0, 18), token: part(1, 18), secret: part(2, 32) }
}
