//! The states of a machine in MAAS as one table. spec: MAAS contract section 3, S5 7.2

use serde::{Deserialize, Deserializer};

macro_rules! statuses {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal $filter:literal $label:literal $kind:ident;)*) => {
        /// State of a machine in MAAS.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum MachineStatus {
            $($(#[doc = $doc])+ $name,)*
            /// A number that this contract does not know.
            Other(i64),
        }

        impl MachineStatus {
            /// All known states.
            pub const KNOWN: &'static [Self] = &[$(Self::$name,)*];

            /// From the number in a machine's body.
            pub const fn from_number(number: i64) -> Self {
                match number { $($number => Self::$name,)* other => Self::Other(other) }
            }

            /// The number in a machine's body.
            pub const fn number(self) -> i64 {
                match self { $(Self::$name => $number,)* Self::Other(number) => number }
            }

            /// The name that a list filter takes: `failed_deployment`; `None` when the state is not known.
            pub const fn filter(self) -> Option<&'static str> {
                match self { $(Self::$name => Some($filter),)* Self::Other(_) => None }
            }

            /// What MAAS shows: `Failed deployment`.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* Self::Other(_) => "Unknown" }
            }

            /// Whether MAAS is at work, has failed, or rests.
            pub const fn kind(self) -> StatusKind {
                match self { $(Self::$name => StatusKind::$kind,)* Self::Other(_) => StatusKind::Unknown }
            }
        }
    };
}

/// What may be expected of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusKind {
    /// It stays until somebody acts.
    Rests,
    /// MAAS is at work: it changes by itself.
    Works,
    /// An operation failed; it stays until somebody acts.
    Failed,
    /// Not known.
    Unknown,
}

// A macro, because number, filter name and label of one state belong in one row.
statuses! {
    /// Known, never commissioned.
    New = 0 "new" "New" Rests;
    /// Hardware is being inventoried.
    Commissioning = 1 "commissioning" "Commissioning" Works;
    /// Commissioning failed.
    FailedCommissioning = 2 "failed_commissioning" "Failed commissioning" Failed;
    /// The machine was reported missing.
    Missing = 3 "missing" "Missing" Failed;
    /// Commissioned and free.
    Ready = 4 "ready" "Ready" Rests;
    /// Set aside.
    Reserved = 5 "reserved" "Reserved" Rests;
    /// Installed; says nothing about whether its first boot has ended.
    Deployed = 6 "deployed" "Deployed" Rests;
    /// Taken out.
    Retired = 7 "retired" "Retired" Rests;
    /// Marked broken.
    Broken = 8 "broken" "Broken" Failed;
    /// Being installed.
    Deploying = 9 "deploying" "Deploying" Works;
    /// Owned by a user, not deployed.
    Allocated = 10 "allocated" "Allocated" Rests;
    /// The deployment failed.
    FailedDeployment = 11 "failed_deployment" "Failed deployment" Failed;
    /// Being released; erasing may be part of it.
    Releasing = 12 "releasing" "Releasing" Works;
    /// The release failed.
    FailedReleasing = 13 "failed_releasing" "Releasing failed" Failed;
    /// Disks are being erased.
    DiskErasing = 14 "disk_erasing" "Disk erasing" Works;
    /// Erasing failed.
    FailedDiskErasing = 15 "failed_disk_erasing" "Failed disk erasing" Failed;
    /// In rescue mode.
    RescueMode = 16 "rescue_mode" "Rescue mode" Rests;
    /// Entering rescue mode.
    EnteringRescueMode = 17 "entering_rescue_mode" "Entering rescue mode" Works;
    /// Entering rescue mode failed.
    FailedEnteringRescueMode = 18 "failed_entering_rescue_mode" "Failed to enter rescue mode" Failed;
    /// Leaving rescue mode.
    ExitingRescueMode = 19 "exiting_rescue_mode" "Exiting rescue mode" Works;
    /// Leaving rescue mode failed.
    FailedExitingRescueMode = 20 "failed_exiting_rescue_mode" "Failed to exit rescue mode" Failed;
    /// Hardware is being tested.
    Testing = 21 "testing" "Testing" Works;
    /// A test failed.
    FailedTesting = 22 "failed_testing" "Failed testing" Failed;
}

impl MachineStatus {
    /// Whether `release` is accepted; on Ready and Releasing it does nothing and succeeds.
    pub const fn releasable(self) -> bool {
        matches!(
            self,
            Self::Allocated
                | Self::Reserved
                | Self::Broken
                | Self::Deploying
                | Self::Deployed
                | Self::FailedDeployment
                | Self::FailedDiskErasing
                | Self::FailedReleasing
                | Self::Ready
                | Self::Releasing
        )
    }

    /// Whether `abort` is accepted.
    pub const fn abortable(self) -> bool {
        matches!(self, Self::Commissioning | Self::Deploying | Self::DiskErasing | Self::Testing)
    }
}

impl std::fmt::Display for MachineStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Other(number) => write!(f, "Unknown state {number}"),
            known => f.write_str(known.label()),
        }
    }
}

impl<'de> Deserialize<'de> for MachineStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        i64::deserialize(deserializer).map(Self::from_number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_contracts_and_without_gaps() {
        for (index, status) in MachineStatus::KNOWN.iter().enumerate() {
            assert_eq!(status.number(), index as i64);
            assert_eq!(MachineStatus::from_number(index as i64), *status);
        }
        assert_eq!(MachineStatus::KNOWN.len(), 23);
        assert_eq!(MachineStatus::from_number(99), MachineStatus::Other(99));
    }

    #[test]
    fn failed_states_are_those_with_failed_in_their_name_and_two_more() {
        for status in MachineStatus::KNOWN {
            let by_name = status.label().to_lowercase().contains("failed");
            let also = matches!(status, MachineStatus::Broken | MachineStatus::Missing);
            assert_eq!(status.kind() == StatusKind::Failed, by_name || also, "{status}");
        }
    }
}
