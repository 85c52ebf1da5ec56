//! How a node is, as this server heard it. spec: S1 "Operator Commands"

use std::time::Duration;

use lattice_api::node::{NodeHealth, SaidHealth};
use lattice_core::heartbeat::Said;
use lattice_core::time::{Timestamp, human};

use super::node_view::millis;
use super::rows::NodeFile;

/// What its heartbeats said; that it is old, or not known here, where it is.
pub fn health(file: &NodeFile, now: Timestamp) -> NodeHealth {
    let window = file.site.heartbeat.times(file.node.effective_class()).window();
    NodeHealth {
        said: file.said.as_ref().map(|said| said_health(said, now)),
        caveat: caveat(file.node.boot_id.is_some(), file.said.as_ref(), window, now),
        gpus_expected: file.gpus_expected,
    }
}

fn said_health(said: &Said, now: Timestamp) -> SaidHealth {
    let vitals = said.vitals;
    SaidHealth {
        at: said.at,
        age_ms: millis(now.since(said.at)),
        gpus: u32::from(vitals.gpu_count),
        max_temperature_c: Some(vitals.max_temperature_c).filter(|celsius| *celsius != i16::MIN),
        ecc_uncorrected: u64::from(vitals.ecc_uncorrected),
        minor_issue: vitals.issue != 0,
        allocations: vitals.allocations,
    }
}

fn caveat(has_registered: bool, said: Option<&Said>, window: Duration, now: Timestamp) -> Option<String> {
    let Some(said) = said else {
        let why = if has_registered {
            "not known here: this server has not heard it since it started; another one may"
        } else {
            "not known: its agent never registered"
        };
        return Some(why.to_owned());
    };
    let age = now.since(said.at);
    let old = |why: &str| Some(format!("{} old: {why}", human(age)));
    if age > window {
        return old("no heartbeat since");
    }
    if said.in_session { None } else { old("its session ended, and it has not registered since") }
}

#[cfg(test)]
mod tests {
    use lattice_core::heartbeat::Vitals;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);
    const WINDOW: Duration = Duration::from_secs(30);

    #[test]
    fn what_is_old_or_not_known_here_is_said_to_be() {
        let said = |secs: i64, in_session| {
            let at = Timestamp::from_millis(1_000_000 - secs * 1_000);
            Some(Said { at, vitals: Vitals::default(), in_session })
        };
        let rows = [
            (false, None, Some("not known: its agent never registered")),
            (true, None, Some("not known here: this server has not heard it since it started; another one may")),
            (true, said(30, true), None),
            (true, said(31, true), Some("31 s old: no heartbeat since")),
            (true, said(5, false), Some("5.0 s old: its session ended, and it has not registered since")),
        ];
        for (registered, said, expected) in rows {
            assert_eq!(caveat(registered, said.as_ref(), WINDOW, NOW).as_deref(), expected, "{said:?}");
        }
    }

    #[test]
    fn an_unreadable_temperature_is_none() {
        let of = |max_temperature_c| {
            let vitals = Vitals { max_temperature_c, ..Vitals::default() };
            said_health(&Said { at: NOW, vitals, in_session: true }, NOW).max_temperature_c
        };
        assert_eq!((of(i16::MIN), of(-3), of(71)), (None, Some(-3), Some(71)));
    }
}
