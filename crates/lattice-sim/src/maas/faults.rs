//! Faults as data: what goes wrong, for whom, and when it heals.

use serde::{Deserialize, Serialize};

/// What goes wrong with one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineFault {
    /// The BMC does not answer: power queries and boots fail.
    BmcUnreachable,
    /// The BMC refuses the login.
    BmcLoginRefused,
    /// After a power cycle the machine never appears in MAAS.
    DiscoveryTimeout,
    /// Commissioning ends in Failed commissioning.
    CommissioningFailure,
    /// Commissioning never ends by itself.
    CommissioningHangs,
    /// The machine disappears from MAAS when it was commissioned.
    MachineDeletedEarly,
    /// The boot card is not seen by commissioning.
    MissingBootDisk,
    /// One interface is not seen by commissioning (the first RoCE interface).
    AbsentNic,
    /// The interface that boots is seen under no name the site expects: it is absent.
    AbsentPxeNic,
    /// The deploy call is answered 400.
    DeployRejected,
    /// The installed system finds no datasource: Failed deployment with that event.
    DeployNoDatasource,
    /// The installation fails for another reason.
    DeployFails,
    /// The deployment never ends by itself.
    DeployHangs,
    /// `get_token` stays null.
    TokenNeverEmitted,
    /// The deployed machine reports no address.
    NoSshAddress,
    /// The SSH server of the deployed machine does not listen.
    SshRefused,
    /// Hardware sync never sets `last_sync`.
    HwSyncUnhealthy,
    /// The machine disappears from MAAS while it deploys.
    MachineDeleted,
    /// The site's bundle fails at the first boot: the agent is not started.
    SiteBootstrapFails,
    /// The agent bootstrap does not run.
    AgentNeverStarts,
    /// Release ends in Releasing failed.
    ReleaseFails,
}

/// What goes wrong with the region as a whole, for callers of its API. Machines still reach it through their rack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SiteFault {
    /// The connection breaks.
    Down,
    /// Every answer takes this much longer.
    Slow {
        /// Milliseconds before each answer.
        delay_ms: u32,
    },
    /// A proxy answers 502 with HTML.
    Html,
    /// 503, no rack controller connected, with `Retry-After`.
    NoRack,
    /// A gateway gives 504 while the operation goes on.
    GatewayTimeout,
    /// 409 with `Retry-After`: a serialization conflict.
    SerializationConflict,
}

/// Whom a fault concerns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "on")]
pub enum Fault {
    /// One machine, by its label, its host name in MAAS, or its system id.
    Machine {
        /// Label, host name or system id.
        name: String,
        /// What goes wrong.
        what: MachineFault,
    },
    /// Every machine.
    EveryMachine {
        /// What goes wrong.
        what: MachineFault,
    },
    /// The region.
    Site {
        /// What goes wrong.
        what: SiteFault,
    },
}

/// A fault that waits for its occasion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmedFault {
    /// What, and for whom.
    pub fault: Fault,
    /// After how many hits it heals; `None` is permanent.
    #[serde(default)]
    pub heals_after: Option<u32>,
    /// How often it struck so far.
    #[serde(default)]
    pub hits: u32,
}

/// All faults of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Faults(Vec<ArmedFault>);

impl Faults {
    /// Arms a fault that heals after `hits` hits.
    pub fn arm(&mut self, fault: Fault, hits: u32) {
        self.0.push(ArmedFault { fault, heals_after: Some(hits), hits: 0 });
    }

    /// Arms a fault that stays until it is healed by hand.
    pub fn arm_permanently(&mut self, fault: Fault) {
        self.0.push(ArmedFault { fault, heals_after: None, hits: 0 });
    }

    /// Heals every fault equal to `fault`; says whether there was one.
    pub fn heal(&mut self, fault: &Fault) -> bool {
        let before = self.0.len();
        self.0.retain(|armed| armed.fault != *fault);
        before != self.0.len()
    }

    /// All faults with their hits, healed ones included.
    pub fn all(&self) -> &[ArmedFault] {
        &self.0
    }

    /// Whether `what` strikes a machine known by any of `names`; counts the hit.
    pub fn strikes(&mut self, what: MachineFault, names: &[&str]) -> bool {
        self.strike(|fault| match fault {
            Fault::Machine { name, what: this } => *this == what && names.contains(&name.as_str()),
            Fault::EveryMachine { what: this } => *this == what,
            Fault::Site { .. } => false,
        })
        .is_some()
    }

    /// The fault that strikes the region now, if one does; counts the hit.
    pub fn strikes_site(&mut self) -> Option<SiteFault> {
        match self.strike(|fault| matches!(fault, Fault::Site { .. }))? {
            Fault::Site { what } => Some(what),
            Fault::Machine { .. } | Fault::EveryMachine { .. } => None,
        }
    }

    fn strike(&mut self, concerns: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let armed = self.0.iter_mut().find(|armed| !armed.is_healed() && concerns(&armed.fault))?;
        armed.hits += 1;
        Some(armed.fault.clone())
    }
}

impl ArmedFault {
    /// Whether it has struck as often as it was meant to.
    pub fn is_healed(&self) -> bool {
        self.heals_after.is_some_and(|limit| self.hits >= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_with_a_count_heals_after_that_many_hits_and_others_are_not_concerned() {
        let mut faults = Faults::default();
        faults.arm(Fault::Machine { name: "c01u43".into(), what: MachineFault::DeployFails }, 2);
        assert!(!faults.strikes(MachineFault::DeployFails, &["c01u38"]));
        assert!(!faults.strikes(MachineFault::DeployRejected, &["c01u43"]));
        let hits: Vec<bool> = (0..3).map(|_| faults.strikes(MachineFault::DeployFails, &["x", "c01u43"])).collect();
        assert_eq!(hits, [true, true, false]);
    }

    #[test]
    fn a_permanent_fault_strikes_until_it_is_healed_by_hand() {
        let mut faults = Faults::default();
        let down = Fault::Site { what: SiteFault::Down };
        faults.arm_permanently(down.clone());
        assert_eq!((0..9).filter_map(|_| faults.strikes_site()).count(), 9);
        assert!(faults.heal(&down));
        assert_eq!(faults.strikes_site(), None);
    }

    #[test]
    fn faults_are_read_from_configuration() {
        let text = r#"[{"fault":{"on":"machine","name":"c01u43","what":"deploy_no_datasource"},"heals_after":1},
                       {"fault":{"on":"site","what":{"slow":{"delay_ms":20}}}}]"#;
        let faults: Faults = serde_json::from_str(text).expect("two faults");
        assert_eq!(faults.all().len(), 2);
        assert_eq!(faults.all()[1].heals_after, None);
    }
}
