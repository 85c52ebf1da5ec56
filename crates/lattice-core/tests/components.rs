//! What Lattice tells State Manager of a node, and what becomes of another system's word.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

#[allow(dead_code, reason = "shared with other tests")]
mod fleet;

use std::time::Duration;

use fleet::{NOW, node, site};
use lattice_core::change::Change;
use lattice_core::component::{
    ComponentFlag, ComponentReport, ComponentState, Seen, Verdict, Word, decide, told, wanted,
};
use lattice_core::node::{Availability, DownCause, Node, PowerFact, Status};
use lattice_core::time::Timestamp;

const fn word(state: ComponentState, flag: ComponentFlag) -> Word {
    Word::new(state, flag)
}

const READY: Word = word(ComponentState::Ready, ComponentFlag::Ok);
const ON: Word = word(ComponentState::On, ComponentFlag::Ok);
const STANDBY: Word = word(ComponentState::Standby, ComponentFlag::Ok);
const LOST: Word = word(ComponentState::Standby, ComponentFlag::Alert);
const OFF: Word = word(ComponentState::Off, ComponentFlag::Ok);

/// A node with its component, and the clock.
struct Life {
    node: Node,
    report: Option<ComponentReport>,
    now: Timestamp,
}

impl Life {
    fn new(status: Status, availability: Availability) -> Self {
        Self { node: node(status, availability), report: None, now: NOW }
    }

    /// A look in which State Manager says this; what is told is taken by it. Gives what was told, and how often it was
    /// said that another system changed something.
    fn look(&mut self, said: Option<Word>, power: PowerFact) -> (Option<Word>, usize) {
        let Verdict { report, tell, changes } = self.judged(said, power);
        self.report = Some(match tell {
            Some(word) => told(&report, word, Some(word), self.now),
            None => report,
        });
        (tell, changes.iter().filter(|change| matches!(change, Change::Note { .. })).count())
    }

    fn judged(&self, said: Option<Word>, power: PowerFact) -> Verdict {
        let none = ComponentReport::none_yet(self.node.id, site().id, "x1000c0s1b0n0".to_owned(), self.now);
        let is_first = self.report.is_none();
        decide(&self.node, self.report.as_ref().unwrap_or(&none), is_first, Seen { said, power }, self.now)
    }

    fn becomes(&mut self, availability: Availability) {
        self.node.state.availability = availability;
        self.node.state.status = match availability {
            Availability::Down | Availability::Failed | Availability::Unknown => Status::Offline,
            _ => Status::Active,
        };
        self.node.down_cause = (availability == Availability::Down).then_some(DownCause::HeartbeatLost);
    }

    fn later(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }
}

#[test]
fn off_is_told_only_where_power_was_seen_off_and_ready_only_of_an_active_and_ready_node() {
    use strum::VariantArray;
    for status in Status::VARIANTS {
        for availability in Availability::VARIANTS {
            for power in [PowerFact::On, PowerFact::Off, PowerFact::Unknown] {
                let node = node(*status, *availability);
                let state = wanted(&node, power).map(|word| word.state);
                let is_off = state == Some(ComponentState::Off);
                assert!(!is_off || power == PowerFact::Off, "{} {power}", node.state);
                let is_ready = state == Some(ComponentState::Ready);
                let is_used = matches!(availability, Availability::Ready | Availability::Degraded);
                assert_eq!(is_ready, *status == Status::Active && is_used, "{}", node.state);
            }
        }
    }
    let mut degraded = node(Status::Active, Availability::Degraded);
    assert_eq!(wanted(&degraded, PowerFact::On), Some(word(ComponentState::Ready, ComponentFlag::Warning)));
    degraded.state.availability = Availability::Drained;
    assert_eq!(wanted(&degraded, PowerFact::Off), Some(STANDBY), "who is heard is not off");
}

#[test]
fn each_state_of_a_node_is_told_once() {
    let mut life = Life::new(Status::Active, Availability::Ready);
    let mut said = ON;
    for (availability, power, want) in [
        (Availability::Ready, PowerFact::On, READY),
        (Availability::Degraded, PowerFact::On, word(ComponentState::Ready, ComponentFlag::Warning)),
        (Availability::Ready, PowerFact::On, READY),
        (Availability::Draining, PowerFact::On, STANDBY),
        (Availability::Down, PowerFact::Unknown, LOST),
        (Availability::Down, PowerFact::Off, word(ComponentState::Off, ComponentFlag::Alert)),
        (Availability::Down, PowerFact::Unknown, LOST),
        (Availability::Ready, PowerFact::On, READY),
    ] {
        life.becomes(availability);
        assert_eq!(life.look(Some(said), power), (Some(want), 0), "{availability} {power}");
        said = want;
        assert_eq!(life.look(Some(said), power), (None, 0), "{availability} {power}");
    }
}

#[test]
fn nothing_is_claimed_of_a_machine_before_its_first_boot_is_over() {
    let mut life = Life::new(Status::Enrolling, Availability::Booting);
    for said in [Some(READY), Some(ON), None] {
        assert_eq!(life.look(said, PowerFact::Off).0, None, "{said:?}");
    }
    life.becomes(Availability::Ready);
    assert_eq!(life.look(Some(ON), PowerFact::On).0, Some(READY));
    // A reimage: the same node, whose ready is its own.
    life.node.state.status = Status::Enrolling;
    life.node.state.availability = Availability::Booting;
    assert_eq!(life.look(Some(READY), PowerFact::Off).0, Some(OFF));
}

#[test]
fn another_systems_word_is_corrected_where_the_agent_is_heard_and_left_where_it_is_not() {
    let mut life = Life::new(Status::Active, Availability::Ready);
    life.look(Some(ON), PowerFact::On);
    life.later(61);
    for said in [OFF, word(ComponentState::Halt, ComponentFlag::Ok), word(ComponentState::Populated, ComponentFlag::Ok)]
    {
        assert_eq!(life.look(Some(said), PowerFact::Unknown), (Some(READY), 1), "{said}");
        // Twice within a minute: it waits, so that two who disagree do not shout.
        assert_eq!(life.look(Some(said), PowerFact::Unknown), (None, 1), "{said}");
        life.later(61);
        assert_eq!(life.look(Some(said), PowerFact::Unknown), (Some(READY), 0), "{said}");
        life.later(61);
    }
    life.becomes(Availability::Down);
    life.look(Some(READY), PowerFact::Unknown);
    for said in [OFF, ON, word(ComponentState::Empty, ComponentFlag::Ok)] {
        life.later(61);
        assert_eq!(life.look(Some(said), PowerFact::Unknown), (None, 1), "{said}");
    }
    life.later(61);
    assert_eq!(life.look(Some(READY), PowerFact::Unknown), (Some(LOST), 1), "nobody else can know that it is ready");
}

#[test]
fn a_flag_that_another_system_raised_is_kept_and_one_of_ours_is_lowered() {
    let mut life = Life::new(Status::Active, Availability::Ready);
    life.look(Some(ON), PowerFact::On);
    life.later(61);
    let alarmed = word(ComponentState::Ready, ComponentFlag::Alert);
    assert_eq!(life.look(Some(alarmed), PowerFact::On), (None, 1));
    assert_eq!(life.report.as_ref().unwrap().raised, Some(ComponentFlag::Alert));
    assert_eq!(life.look(Some(alarmed), PowerFact::On), (None, 0));
    life.becomes(Availability::Draining);
    let kept = word(ComponentState::Standby, ComponentFlag::Alert);
    assert_eq!(life.look(Some(alarmed), PowerFact::On), (Some(kept), 0));
    assert_eq!(life.look(Some(kept), PowerFact::On), (None, 0), "it is still theirs");
    // They take it back.
    assert_eq!(life.look(Some(STANDBY), PowerFact::On), (None, 1));
    assert_eq!(life.report.as_ref().unwrap().raised, None);
    life.becomes(Availability::Down);
    assert_eq!(life.look(Some(STANDBY), PowerFact::On).0, Some(LOST));
    life.becomes(Availability::Ready);
    assert_eq!(life.look(Some(LOST), PowerFact::On).0, Some(READY), "our own alert goes with its cause");
}

#[test]
fn a_locked_component_and_one_that_is_not_there_are_told_nothing() {
    let mut life = Life::new(Status::Active, Availability::Ready);
    assert_eq!(life.look(Some(word(ComponentState::On, ComponentFlag::Locked)), PowerFact::On).0, None);
    assert_eq!(life.look(None, PowerFact::On).0, None);
    assert_eq!(life.report.as_ref().unwrap().in_words(), "State Manager has no component x1000c0s1b0n0");
}

#[test]
fn a_word_that_was_told_and_not_kept_is_known_again_and_is_nobody_elses() {
    let mut life = Life::new(Status::Active, Availability::Ready);
    life.look(Some(ON), PowerFact::On);
    life.becomes(Availability::Draining);
    // It was told, and the server died before it kept that.
    assert_eq!(life.look(Some(STANDBY), PowerFact::On), (None, 0));
    assert_eq!(life.report.as_ref().unwrap().told, Some(STANDBY));
}

#[test]
fn a_word_that_others_change_while_it_is_told_is_seen_by_the_next_look() {
    let mut life = Life::new(Status::Active, Availability::Ready);
    let Verdict { report, tell, .. } = life.judged(Some(ON), PowerFact::On);
    let halted = word(ComponentState::Halt, ComponentFlag::Ok);
    life.report = Some(told(&report, tell.unwrap(), Some(halted), life.now));
    assert_eq!(life.look(Some(halted), PowerFact::On), (None, 1));
    // One that takes a word and keeps its own is nobody's change.
    life.report = Some(told(&report, READY, Some(ON), life.now));
    assert_eq!(life.look(Some(ON), PowerFact::On), (None, 0));
}

#[test]
fn what_is_no_news_is_written_again_only_when_it_is_five_minutes_old() {
    let mut life = Life::new(Status::Active, Availability::Ready);
    life.look(Some(ON), PowerFact::On);
    life.later(60);
    let before = life.report.clone();
    assert!(life.judged(Some(READY), PowerFact::On).changes.is_empty());
    life.later(240);
    assert_eq!(life.judged(Some(READY), PowerFact::On).changes.len(), 1);
    assert_eq!(before.unwrap().said, Some(READY));
}
