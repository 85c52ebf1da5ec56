//! A node as OpenCHAMI's State Manager has it: what is said of its component there, and what Lattice tells it.

mod decide;
mod report;
mod word;

pub use decide::{Seen, Verdict, decide, told, wanted};
pub use report::ComponentReport;
pub use word::{ComponentFlag, ComponentState, Word};
