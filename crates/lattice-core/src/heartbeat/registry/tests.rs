//! Who is heard, refused, revoked, silent.

use super::*;
use crate::ids::uuid_v7;

const T0: Timestamp = Timestamp::from_millis(1_000_000);
const STANDARD: Watch = Watch { silence: Some(Duration::from_secs(30)), report_return: false };

fn node(number: u32) -> NodeId {
    let mut random = [0; 10];
    random[6..].copy_from_slice(&number.to_be_bytes());
    NodeId::new(uuid_v7(T0, random))
}

fn session(number: u8) -> SessionId {
    SessionId::new(uuid_v7(T0, [number; 10]))
}

fn beat(session: SessionId, sequence: u64) -> Beat {
    Beat { session, sequence, vitals: Vitals { gpu_count: 8, ..Vitals::default() } }
}

fn after(secs: u64) -> Timestamp {
    T0 + Duration::from_secs(secs)
}

fn silent_at(registry: &Registry, now: Timestamp) -> Vec<NodeId> {
    let mut silent = Vec::new();
    registry.silent(now, &mut silent);
    silent.iter().map(|silence| silence.node).collect()
}

#[test]
fn the_pace_of_a_node_is_what_was_said_last_and_goes_with_the_node() {
    let registry = Registry::new();
    registry.admit(node(0), 1, T0);
    let pace = || registry.handle(node(0)).and_then(|handle| handle.pace());
    assert_eq!(pace(), None);
    registry.set_pace(node(0), Duration::from_millis(500));
    assert_eq!(pace(), Some(Duration::from_millis(500)));
    registry.remove(node(0));
    registry.admit(node(0), 1, T0);
    assert_eq!(pace(), None, "another tenant of the slot");
}

#[test]
fn replays_steps_back_and_unknown_sessions_are_refused() {
    let registry = Registry::new();
    let handle = registry.admit(node(1), 1, T0);
    assert_eq!(handle.beat(&beat(session(1), 1), T0), Err(Refused::SessionUnknown));
    handle.open_session(session(1), Vitals::default(), T0).unwrap();
    assert!(handle.beat(&beat(session(1), 5), after(1)).unwrap().health_changed);
    for given in [5, 4, 0] {
        assert_eq!(handle.beat(&beat(session(1), given), after(2)), Err(Refused::Replayed { given, last: 5 }));
    }
    assert_eq!(handle.last_heard(), after(1), "a refused heartbeat is no sign of life");
    assert!(handle.beat(&beat(session(1), 8), after(3)).unwrap().health_changed, "nobody took it in");
    handle.settle();
    assert!(!handle.beat(&beat(session(1), 9), after(3)).unwrap().health_changed);
    handle.open_session(session(2), Vitals::default(), after(4)).unwrap();
    assert_eq!(handle.beat(&beat(session(1), 10), after(5)), Err(Refused::SessionUnknown));
    assert!(handle.beat(&beat(session(2), 1), after(5)).is_ok());
    assert!(registry.end_session(node(1)));
    assert_eq!(handle.beat(&beat(session(2), 2), after(6)), Err(Refused::SessionUnknown));
}

#[test]
fn a_new_epoch_revokes_through_handles_that_are_held() {
    let registry = Registry::new();
    let handle = registry.admit(node(1), 1, T0);
    assert_eq!(handle.authorise(1), Ok(()));
    assert!(registry.revoke_before(node(1), 2));
    assert_eq!(handle.authorise(1), Err(Refused::Revoked { certificate: 1, current: 2 }));
    assert_eq!(handle.authorise(2), Ok(()));
    registry.admit(node(1), 1, T0);
    assert_eq!(handle.authorise(2), Ok(()), "an enrolment that lost the race does not bring the old epoch back");
}

#[test]
fn a_removed_node_is_refused_and_its_slot_serves_another() {
    let registry = Registry::new();
    let removed = registry.admit(node(1), 1, T0);
    assert!(registry.remove(node(1)) && !registry.remove(node(1)));
    let other = registry.admit(node(2), 1, T0);
    assert_eq!(removed.authorise(1), Err(Refused::NodeUnknown));
    assert_eq!(other.authorise(1), Ok(()));
    assert_eq!((registry.len(), registry.handle(node(1)).is_none()), (1, true));
}

#[test]
fn silence_is_reported_at_its_limit_and_not_before() {
    let registry = Registry::new();
    for number in 0..3 {
        let handle = registry.admit(node(number), 1, T0);
        handle.open_session(session(1), Vitals::default(), T0).unwrap();
    }
    registry.watch(node(0), STANDARD);
    registry.watch(node(1), Watch { silence: Some(Duration::from_secs(120)), report_return: false });
    assert_eq!(silent_at(&registry, T0 + Duration::from_millis(29_999)), []);
    assert_eq!(silent_at(&registry, after(30)), [node(0)]);
    assert_eq!(silent_at(&registry, after(120)), [node(0), node(1)], "node 2 is not watched");
    registry.handle(node(0)).unwrap().beat(&beat(session(1), 1), after(120)).unwrap();
    assert_eq!(silent_at(&registry, after(121)), [node(1)]);
    registry.restart_silence(after(121));
    assert_eq!(silent_at(&registry, after(150)), [], "no verdict before one full window after a restart");
    assert_eq!(silent_at(&registry, after(151)), [node(0)]);
}

#[test]
fn what_a_server_did_not_hear_while_it_stood_still_or_its_clock_was_set_counts_for_no_silence() {
    let hour = Duration::from_secs(3_600);
    let jumps = [(after(20) + hour, "ahead"), (Timestamp::from_millis((after(20)).as_millis() - 3_600_000), "back")];
    for (set, how) in jumps {
        let registry = Registry::new();
        registry.admit(node(0), 1, T0).open_session(session(1), Vitals::default(), T0).unwrap();
        registry.watch(node(0), STANDARD);
        for seconds in 0..=20 {
            assert_eq!(registry.listens(after(seconds)), None);
        }
        assert_eq!(registry.listens(set), Some(set.as_millis() - after(20).as_millis()), "{how}");
        assert_eq!(registry.said(node(0)), None, "nobody knows when it was heard last");
        assert_eq!(silent_at(&registry, set + Duration::from_secs(9)), [], "{how}: it was silent for 29 s");
        assert_eq!(silent_at(&registry, set + Duration::from_secs(10)), [node(0)], "{how}");
        registry.remove(node(0));
        registry.listens(set + hour);
        assert_eq!(silent_at(&registry, set + hour), [], "{how}: nobody sits there");
    }
    let registry = Registry::new();
    registry.listens(after(200));
    registry.admit(node(0), 1, after(100));
    registry.watch(node(0), STANDARD);
    registry.listens(after(101));
    assert_eq!(silent_at(&registry, after(129)), [], "it was heard after the clock was set back");
    let registry = Registry::new();
    registry.listens(T0);
    registry.admit(node(0), 1, after(100));
    registry.watch(node(0), STANDARD);
    registry.listens(after(110));
    assert_eq!(silent_at(&registry, after(139)), [], "nobody is heard later than now");
    assert_eq!(silent_at(&registry, after(140)), [node(0)]);
}

#[test]
fn what_a_node_said_has_its_time_and_nobody_guesses_it_before() {
    let registry = Registry::new();
    let handle = registry.admit(node(1), 1, T0);
    assert_eq!(registry.said(node(1)), None, "it was admitted, not heard");
    let vitals = Vitals { gpu_count: 8, ..Vitals::default() };
    handle.open_session(session(1), vitals, after(1)).unwrap();
    let said = Said { at: after(1), vitals, in_session: true };
    assert_eq!(registry.said(node(1)), Some(said));
    registry.end_session(node(1));
    assert_eq!(registry.said(node(1)), Some(Said { in_session: false, ..said }), "old, and said to be");
    registry.restart_silence(after(9));
    assert_eq!(registry.said(node(1)), None, "the time is that of the restart");
    handle.open_session(session(2), vitals, after(10)).unwrap();
    handle.beat(&beat(session(2), 1), after(11)).unwrap();
    assert_eq!(registry.said(node(1)).map(|said| said.at), Some(after(11)));
    registry.remove(node(1));
    registry.admit(node(2), 1, after(12));
    assert_eq!(registry.said(node(2)), None, "another tenant of the slot");
}

#[test]
fn a_return_is_reported_until_the_watch_changes() {
    let registry = Registry::new();
    let handle = registry.admit(node(1), 1, T0);
    handle.open_session(session(1), Vitals::default(), T0).unwrap();
    assert_eq!(registry.watch(node(1), Watch { report_return: true, ..STANDARD }), Some(T0));
    assert!(handle.beat(&beat(session(1), 1), after(1)).unwrap().returned);
    assert!(handle.beat(&beat(session(1), 2), after(2)).unwrap().returned);
    registry.watch(node(1), STANDARD);
    assert!(!handle.beat(&beat(session(1), 3), after(3)).unwrap().returned);
}

#[test]
fn a_hundred_thousand_nodes_take_at_most_a_hundred_bytes_each() {
    let registry = Registry::new();
    for number in 0..100_000 {
        registry.admit(node(number), 1, T0);
    }
    let each = registry.bytes() as f64 / 100_000.0;
    assert!(each <= 100.0, "{each} bytes");
    assert!(registry.handle(node(99_999)).is_some() && registry.handle(node(100_000)).is_none());
}
