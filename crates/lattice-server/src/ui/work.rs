//! What runs on a node, what its agent was asked to do, and what its BMC says.

use askama::Template;
use askama::filters::HtmlSafe;
use lattice_api::allocation::AllocationRow;
use lattice_api::bmc::BmcView;
use lattice_api::task::TaskRow;
use lattice_core::agent::task::TaskStatus;
use lattice_core::allocation::AllocationStatus;
use lattice_core::bmc::{BreakerState, PowerReading};
use lattice_core::node::PowerFact;

use super::action::{Button, allocation_button};
use super::shell::Shell;
use super::words::{Pill, Tone, of_allocation, pill};

/// Rows of each list that a node's page shows; the rest is a command away.
pub const SHOWN: u32 = 12;

/// The panel of a node's allocations.
#[derive(Template)]
#[template(path = "work.html")]
pub struct WorkPanel {
    shell: Shell,
    hostname: String,
    drained: bool,
    lines: Vec<AllocationLine>,
    more: bool,
}
impl HtmlSafe for WorkPanel {}

struct AllocationLine {
    row: AllocationRow,
    tone: Tone,
    ask: Option<Button>,
}

impl WorkPanel {
    /// The panel of these allocations, all of which are placed there; `drained`: the node is being emptied.
    pub fn of(shell: &Shell, hostname: &str, drained: bool, rows: Vec<AllocationRow>, more: bool) -> Self {
        let line = |row: AllocationRow| AllocationLine {
            tone: if drained && row.status == AllocationStatus::Active {
                Tone::Warn
            } else {
                of_allocation(&row.status)
            },
            ask: allocation_button(&row, shell),
            row,
        };
        let lines = rows.into_iter().map(line).collect();
        Self { shell: shell.clone(), hostname: hostname.to_owned(), drained, lines, more }
    }
}

/// The panel of what a node's agent was asked to do.
#[derive(Template)]
#[template(path = "agent_tasks.html")]
pub struct TasksPanel {
    hostname: String,
    lines: Vec<(TaskRow, Tone)>,
}
impl HtmlSafe for TasksPanel {}

impl TasksPanel {
    /// The panel of these tasks, the newest first.
    pub fn of(hostname: &str, rows: Vec<TaskRow>) -> Self {
        let tone = |status: TaskStatus| match status {
            TaskStatus::Pending | TaskStatus::Delivered | TaskStatus::Running => Tone::Info,
            TaskStatus::Succeeded => Tone::Ok,
            TaskStatus::Failed => Tone::Bad,
            TaskStatus::Expired => Tone::Warn,
            TaskStatus::Cancelled => Tone::Off,
        };
        let lines = rows
            .into_iter()
            .map(|row| {
                let tone = tone(row.status);
                (row, tone)
            })
            .collect();
        Self { hostname: hostname.to_owned(), lines }
    }
}

/// The panel of a node's BMC.
#[derive(Template)]
#[template(path = "bmc.html")]
pub struct BmcPanel {
    shell: Shell,
    view: BmcView,
}
impl HtmlSafe for BmcPanel {}

impl BmcPanel {
    /// The panel of a BMC.
    pub fn of(shell: &Shell, view: BmcView) -> Self {
        Self { shell: shell.clone(), view }
    }

    fn is_refused(&self) -> bool {
        match self.view.breaker {
            BreakerState::Open { .. } => true,
            BreakerState::Closed | BreakerState::HalfOpen { .. } => false,
        }
    }

    fn power(&self) -> Pill<&'static PowerFact> {
        let said = self.view.report.as_ref().and_then(|report| report.power.as_ref());
        match said.map_or(PowerFact::Unknown, PowerReading::fact) {
            PowerFact::On => pill(Tone::Ok, &PowerFact::On),
            PowerFact::Off => pill(Tone::Warn, &PowerFact::Off),
            PowerFact::Unknown => pill(Tone::Off, &PowerFact::Unknown),
        }
    }
}
