//! Mishaps for a site that is watched: each shows another way in which onboarding meets the world.

use super::faults::{Fault, Faults, MachineFault, SiteFault};
use crate::dice::Dice;
use crate::machine::population::Population;

/// Which mishaps a site has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishaps {
    /// None.
    None,
    /// A few that heal by the retries of onboarding alone.
    Healing,
    /// The same, and one that waits for a person: a boot card that is not there.
    AndOneForAPerson,
}

/// What befalls one machine each, with the hits after which it heals. None makes commissioning fail: a failed
/// commissioning is for a person to judge. spec: S5 4.6
const HEALING: [(MachineFault, u32); 5] = [
    (MachineFault::DeployNoDatasource, 1),
    (MachineFault::TokenNeverEmitted, 2),
    (MachineFault::NoSshAddress, 2),
    (MachineFault::HwSyncUnhealthy, 1),
    (MachineFault::DeployRejected, 1),
];

impl Mishaps {
    /// The faults for a site. The first machine in the racks is spared, so that one is quick; a small site has fewer.
    pub fn faults(self, seed: u64, population: &Population) -> Faults {
        let mut faults = Faults::default();
        if self == Self::None {
            return faults;
        }
        faults.arm(Fault::Site { what: SiteFault::NoRack }, 1);
        let mut free: Vec<&str> = population.machines.iter().skip(1).map(|machine| machine.label.as_str()).collect();
        let mut draw = |about: u64| {
            let at = (!free.is_empty()).then(|| Dice(seed).below(free.len() as u64, &[0x6d69, about]) as usize);
            at.map(|at| free.swap_remove(at).to_owned())
        };
        if self == Self::AndOneForAPerson
            && let Some(name) = draw(100)
        {
            faults.arm_permanently(Fault::Machine { name, what: MachineFault::MissingBootDisk });
        }
        for (about, (what, hits)) in HEALING.into_iter().enumerate() {
            if let Some(name) = draw(about as u64) {
                faults.arm(Fault::Machine { name, what }, hits);
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(mishaps: Mishaps, seed: u64, count: u32) -> Vec<String> {
        let faults = mishaps.faults(seed, &Population::generate(seed, count));
        let name = |fault: &Fault| match fault {
            Fault::Machine { name, .. } => Some(name.clone()),
            Fault::EveryMachine { .. } | Fault::Site { .. } => None,
        };
        faults.all().iter().filter_map(|armed| name(&armed.fault)).collect()
    }

    #[test]
    fn each_mishap_befalls_another_machine_and_never_the_first() {
        for seed in 0..50 {
            let found = names(Mishaps::AndOneForAPerson, seed, 20);
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 6, "seed {seed}");
            assert!(!found.contains(&"c01u43".to_owned()));
        }
    }

    #[test]
    fn a_small_site_has_fewer_mishaps_and_a_quiet_one_none() {
        assert_eq!(names(Mishaps::Healing, 1, 1).len(), 0);
        assert_eq!(names(Mishaps::Healing, 1, 3).len(), 2);
        assert_eq!(names(Mishaps::None, 1, 20).len(), 0);
    }

    #[test]
    fn all_but_the_one_for_a_person_heal() {
        let faults = Mishaps::AndOneForAPerson.faults(1, &Population::generate(1, 20));
        assert_eq!(faults.all().iter().filter(|armed| armed.heals_after.is_none()).count(), 1);
    }
}
