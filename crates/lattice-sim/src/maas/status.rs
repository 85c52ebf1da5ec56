//! Machine statuses and the changes that MAAS allows between them, as one table.
//!
//! The table is section 3 of the MAAS contract; a test compares every row with it.

use NodeStatus::*;

/// Status of a machine in MAAS. The discriminant is the number MAAS reports in `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum NodeStatus {
    New = 0,
    Commissioning = 1,
    FailedCommissioning = 2,
    Missing = 3,
    Ready = 4,
    Reserved = 5,
    Deployed = 6,
    Retired = 7,
    Broken = 8,
    Deploying = 9,
    Allocated = 10,
    FailedDeployment = 11,
    Releasing = 12,
    FailedReleasing = 13,
    DiskErasing = 14,
    FailedDiskErasing = 15,
    RescueMode = 16,
    EnteringRescueMode = 17,
    FailedEnteringRescueMode = 18,
    ExitingRescueMode = 19,
    FailedExitingRescueMode = 20,
    Testing = 21,
    FailedTesting = 22,
}

/// One row of the status table.
pub struct StatusRow {
    /// The status this row describes.
    pub status: NodeStatus,
    /// The form used by the `status=` list filter.
    pub api_name: &'static str,
    /// The form reported in `status_name`.
    pub label: &'static str,
    /// Statuses that may follow.
    pub may_go_to: &'static [NodeStatus],
    /// Where a failure or a timeout leads, if MAAS has such a place.
    pub fails_to: Option<NodeStatus>,
}

/// Every status in the order of its number.
pub const STATUSES: [StatusRow; 23] = [
    row(New, "new", "New", &[Commissioning, Missing, Ready, Retired, Broken, EnteringRescueMode, Testing], None),
    row(
        Commissioning,
        "commissioning",
        "Commissioning",
        &[New, FailedCommissioning, Missing, Ready, Retired, Broken, Testing],
        Some(FailedCommissioning),
    ),
    row(
        FailedCommissioning,
        "failed_commissioning",
        "Failed commissioning",
        &[Commissioning, Missing, Retired, Broken, EnteringRescueMode, Testing],
        None,
    ),
    row(
        Missing,
        "missing",
        "Missing",
        &[New, Commissioning, Ready, Broken, Allocated, EnteringRescueMode, Testing],
        None,
    ),
    row(
        Ready,
        "ready",
        "Ready",
        &[Commissioning, Missing, Reserved, Retired, Broken, Allocated, EnteringRescueMode, Testing],
        None,
    ),
    row(
        Reserved,
        "reserved",
        "Reserved",
        &[Missing, Ready, Retired, Broken, Allocated, Releasing, DiskErasing, EnteringRescueMode, Testing],
        None,
    ),
    row(
        Deployed,
        "deployed",
        "Deployed",
        &[Missing, Ready, Broken, Allocated, Releasing, DiskErasing, EnteringRescueMode, Testing],
        None,
    ),
    row(Retired, "retired", "Retired", &[New, Missing, Ready, Broken, EnteringRescueMode, Testing], None),
    row(
        Broken,
        "broken",
        "Broken",
        &[Commissioning, Ready, Deployed, Releasing, DiskErasing, EnteringRescueMode, Testing],
        None,
    ),
    row(
        Deploying,
        "deploying",
        "Deploying",
        &[Missing, Ready, Deployed, Broken, Allocated, FailedDeployment, Releasing, DiskErasing],
        Some(FailedDeployment),
    ),
    row(
        Allocated,
        "allocated",
        "Allocated",
        &[Missing, Ready, Retired, Broken, Deploying, Releasing, DiskErasing, EnteringRescueMode, Testing],
        None,
    ),
    row(
        FailedDeployment,
        "failed_deployment",
        "Failed deployment",
        &[Missing, Ready, Broken, Allocated, Releasing, DiskErasing, EnteringRescueMode, Testing],
        None,
    ),
    row(
        Releasing,
        "releasing",
        "Releasing",
        &[
            New,
            Missing,
            Ready,
            Reserved,
            Deployed,
            Broken,
            Allocated,
            FailedDeployment,
            FailedReleasing,
            FailedDiskErasing,
        ],
        Some(FailedReleasing),
    ),
    row(
        FailedReleasing,
        "failed_releasing",
        "Releasing failed",
        &[Ready, Broken, Releasing, DiskErasing, Testing],
        None,
    ),
    row(
        DiskErasing,
        "disk_erasing",
        "Disk erasing",
        &[Ready, Broken, Releasing, DiskErasing, FailedDiskErasing],
        Some(FailedDiskErasing),
    ),
    row(
        FailedDiskErasing,
        "failed_disk_erasing",
        "Failed disk erasing",
        &[Ready, Broken, Allocated, Releasing, DiskErasing, EnteringRescueMode, Testing],
        None,
    ),
    row(RescueMode, "rescue_mode", "Rescue mode", &[Broken, ExitingRescueMode, Testing], None),
    row(
        EnteringRescueMode,
        "entering_rescue_mode",
        "Entering rescue mode",
        &[Ready, Deployed, Broken, RescueMode, FailedEnteringRescueMode, ExitingRescueMode],
        Some(FailedEnteringRescueMode),
    ),
    row(
        FailedEnteringRescueMode,
        "failed_entering_rescue_mode",
        "Failed to enter rescue mode",
        &[Broken, EnteringRescueMode, ExitingRescueMode, Testing],
        None,
    ),
    row(
        ExitingRescueMode,
        "exiting_rescue_mode",
        "Exiting rescue mode",
        &[
            New,
            FailedCommissioning,
            Missing,
            Ready,
            Reserved,
            Deployed,
            Retired,
            Broken,
            Allocated,
            FailedDeployment,
            FailedReleasing,
            FailedDiskErasing,
            RescueMode,
            FailedEnteringRescueMode,
            FailedExitingRescueMode,
            FailedTesting,
        ],
        Some(FailedExitingRescueMode),
    ),
    row(
        FailedExitingRescueMode,
        "failed_exiting_rescue_mode",
        "Failed to exit rescue mode",
        &[Broken, ExitingRescueMode, Testing],
        None,
    ),
    row(
        Testing,
        "testing",
        "Testing",
        &[
            New,
            Commissioning,
            Missing,
            Ready,
            Reserved,
            Deployed,
            Retired,
            Broken,
            Allocated,
            FailedDeployment,
            FailedReleasing,
            FailedDiskErasing,
            FailedEnteringRescueMode,
            FailedExitingRescueMode,
            FailedTesting,
        ],
        Some(FailedTesting),
    ),
    row(
        FailedTesting,
        "failed_testing",
        "Failed testing",
        &[Commissioning, Missing, Ready, Deployed, Broken, EnteringRescueMode, Testing],
        None,
    ),
];

/// Statuses from which `release` may start. spec: contract section 3, "Releasable".
pub const RELEASABLE: [NodeStatus; 8] =
    [Allocated, Reserved, Broken, Deploying, Deployed, FailedDeployment, FailedDiskErasing, FailedReleasing];

/// Statuses in which `abort` has something to stop. spec: contract section 3.
pub const ABORTABLE: [NodeStatus; 4] = [Commissioning, Deploying, DiskErasing, Testing];

/// Statuses in which the network and storage configuration may be edited.
pub const EDITABLE: [NodeStatus; 6] = [New, Ready, Allocated, FailedCommissioning, FailedTesting, Broken];

const fn row(
    status: NodeStatus,
    api_name: &'static str,
    label: &'static str,
    may_go_to: &'static [NodeStatus],
    fails_to: Option<NodeStatus>,
) -> StatusRow {
    StatusRow { status, api_name, label, may_go_to, fails_to }
}

impl NodeStatus {
    /// The table row of this status.
    pub fn row(self) -> &'static StatusRow {
        &STATUSES[self as usize]
    }

    /// The number MAAS reports in `status`.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The status whose list-filter form is `name`, if there is one.
    pub fn from_api_name(name: &str) -> Option<Self> {
        STATUSES.iter().find(|row| row.api_name == name).map(|row| row.status)
    }

    /// Whether MAAS lets a machine go from this status to `to`. Staying is always allowed.
    pub fn may_go_to(self, to: Self) -> bool {
        self == to || self.row().may_go_to.contains(&to)
    }
}
