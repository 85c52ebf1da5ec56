//! Scenarios: what befalls the machines of a simulated site, as a file. design: 7-tests-and-benchmarks, S5 4.7

use std::path::Path;

use lattice_core::failure::FailureClass;
use lattice_core::site::MaasPolicy;
use serde::Deserialize;

use crate::maas::faults::{ArmedFault, Fault, MachineFault};
use crate::machine::population::Population;

/// Scenarios that are built in, by name.
const BUILT_IN: [(&str, &str); 1] = [("maas-mishaps", include_str!("../scenarios/maas-mishaps.toml"))];

/// What befalls a simulated site, and what each machine must show.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it shows, in one sentence.
    pub description: String,
    /// How many machines the site has.
    pub nodes: u32,
    /// Policy of the site; what is not named has its default.
    #[serde(default)]
    pub policy: MaasPolicy,
    /// What befalls whom.
    #[serde(rename = "mishap")]
    pub mishaps: Vec<Mishap>,
}

/// What befalls one machine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mishap {
    /// Position of the machine in the racks, from 1.
    pub machine: u32,
    /// What goes wrong.
    pub fault: Trouble,
    /// After how many hits it heals by itself; a fault without this stays until it is repaired.
    #[serde(default)]
    pub heals_after: Option<u32>,
    /// Class that the failure must have.
    pub class: FailureClass,
    /// What a person puts right before the printed command is run, in words; absent when the command alone helps.
    #[serde(default)]
    pub repair: Option<String>,
    /// Whether the repair ends with a power cycle of the machine.
    #[serde(default)]
    pub reboot: bool,
}

/// What can go wrong with one machine of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(from = "TroubleName")]
pub enum Trouble {
    /// The machine or its place in the region is broken.
    Machine(MachineFault),
    /// The machine is onboarded at a site of its own, which is not as it should be.
    Site(SiteTrouble),
}

/// What can be wrong with a site; it has the region in common with the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SiteTrouble {
    /// It has no BMC login yet.
    WithoutBmcLogin,
    /// It is disabled right after the onboarding was accepted.
    SiteDisabled,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TroubleName {
    Site(SiteTrouble),
    Machine(MachineFault),
}

impl From<TroubleName> for Trouble {
    fn from(name: TroubleName) -> Self {
        match name {
            TroubleName::Site(trouble) => Self::Site(trouble),
            TroubleName::Machine(fault) => Self::Machine(fault),
        }
    }
}

/// Why there is no such scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Neither a built-in one nor a file.
    #[error("there is no scenario `{name}`: built in are {known}; or name a file")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The file cannot be read.
    #[error("{name} cannot be read")]
    Io {
        /// The file.
        name: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not a scenario.
    #[error("{name} is not a scenario: {why}")]
    Malformed {
        /// The file, or the built-in name.
        name: String,
        /// The field and what is wrong with it.
        why: String,
    },
}

impl Scenario {
    /// A built-in scenario by its name, or one from a TOML file.
    ///
    /// # Errors
    /// [`ScenarioError`]: there is none, or it is malformed.
    pub fn load(name: &str) -> Result<Self, ScenarioError> {
        let built_in = BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
        let text = match built_in {
            Some(text) => text,
            None if !Path::new(name).is_file() => {
                let known = BUILT_IN.map(|(known, _)| known).join(", ");
                return Err(ScenarioError::Unknown { name: name.to_owned(), known });
            }
            None => {
                std::fs::read_to_string(name).map_err(|source| ScenarioError::Io { name: name.to_owned(), source })?
            }
        };
        Self::parse(name, &text)
    }

    /// A scenario from its text; `name` is for errors.
    ///
    /// # Errors
    /// A field is unknown, missing or out of range; two mishaps befall one machine.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let malformed = |why: String| ScenarioError::Malformed { name: name.to_owned(), why };
        let scenario: Self = toml::from_str(text).map_err(|error| malformed(error.to_string()))?;
        if scenario.nodes == 0 || scenario.nodes > 1_000 {
            return Err(malformed(format!("nodes = {}: 1 to 1000 are simulated", scenario.nodes)));
        }
        let mut seen = std::collections::BTreeSet::new();
        for mishap in &scenario.mishaps {
            let machine = mishap.machine;
            if machine == 0 || machine > scenario.nodes {
                return Err(malformed(format!("machine = {machine}: there are machines 1 to {}", scenario.nodes)));
            }
            if !seen.insert(machine) {
                return Err(malformed(format!("machine = {machine} stands twice: one mishap for each machine")));
            }
        }
        Ok(scenario)
    }

    /// The mishap of the machine at `index`, from 0.
    pub fn mishap(&self, index: usize) -> Option<&Mishap> {
        self.mishaps.iter().find(|mishap| mishap.machine as usize == index + 1)
    }

    /// The faults of its machines, to be armed.
    pub fn faults(&self, population: &Population) -> Vec<ArmedFault> {
        let armed = |(index, machine): (usize, &crate::machine::hardware::Hardware)| {
            let mishap = self.mishap(index)?;
            let fault = mishap.fault.on(&machine.label)?;
            Some(ArmedFault { fault, heals_after: mishap.heals_after, hits: 0 })
        };
        population.machines.iter().enumerate().filter_map(armed).collect()
    }
}

impl Trouble {
    /// The fault of the simulated region that it is, for the machine of that label.
    pub fn on(self, label: &str) -> Option<Fault> {
        match self {
            Self::Machine(what) => Some(Fault::Machine { name: label.to_owned(), what }),
            Self::Site(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use strum::VariantArray;

    use super::*;

    #[test]
    fn the_built_in_scenario_shows_every_failure_class_once_and_leaves_machines_alone() {
        let scenario = Scenario::load("maas-mishaps").expect("it is built in");
        let classes: BTreeSet<FailureClass> = scenario.mishaps.iter().map(|mishap| mishap.class).collect();
        assert_eq!(classes, FailureClass::VARIANTS.iter().copied().collect());
        assert!(scenario.mishaps.len() < scenario.nodes as usize);
    }

    #[test]
    fn a_scenario_that_cannot_be_played_is_refused_with_its_field() {
        let refused = |text: &str| Scenario::parse("x.toml", text).map_err(|error| error.to_string());
        let head = "name = 'x'\ndescription = 'y'\nnodes = 2\n";
        let mishap = |machine: u32| {
            format!("[[mishap]]\nmachine = {machine}\nfault = 'bmc_unreachable'\nclass = 'bmc_power_failure'\n")
        };
        assert!(refused(&format!("{head}{}", mishap(2))).is_ok());
        for (text, field) in [
            (format!("{head}{}", mishap(3)), "machine = 3"),
            (format!("{head}{}{}", mishap(1), mishap(1)), "machine = 1 stands twice"),
            (format!("{head}{}", mishap(1).replace("bmc_unreachable", "gremlins")), "fault"),
            (format!("{head}{}colour = 1", mishap(1)), "colour"),
            ("name = 'x'\ndescription = 'y'\nnodes = 0\nmishap = []".to_owned(), "nodes = 0"),
        ] {
            let error = refused(&text).expect_err(&text);
            assert!(error.contains(field), "{error}");
        }
    }
}
