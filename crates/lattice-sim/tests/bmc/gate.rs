//! One call at a time per BMC, visible; no call with a credential that was refused three times.

use std::sync::Arc;
use std::time::Duration;

use lattice_core::bmc::{Bmc, BmcEndpoint, BmcTls, BmcWay, BreakerState, CipherSuite};
use lattice_core::ids::{Generation, NodeId, SiteId};
use lattice_core::node::PowerFact;
use lattice_core::time::{Clock, Timestamp};
use lattice_providers::error::{ErrorKind, Remedy};
use lattice_providers::machine::bmc::{BmcControl, BmcGates, BmcObserver, Caller, Gate, Gated, PowerOrder};
use lattice_sim::bmc::BmcFault;
use lattice_sim::clock::SystemClock;

use crate::target::{PASSWORD, Target, login};

fn gated(target: &Target, gate: &Arc<Gate>, password: &str, who: &str) -> Gated {
    let caller = Caller { who: who.to_owned(), why: "test".to_owned() };
    Gated::new(target.client_with(password), Arc::clone(gate), &login(password), caller, Arc::new(SystemClock))
}

async fn three_refusals_open_the_breaker_for_all_users(target: Option<Target>) {
    let Some(target) = target else { return };
    let gate = Arc::new(Gate::default());
    let (poll, job) = (gated(&target, &gate, "wrong-one", "health poll"), gated(&target, &gate, "wrong-one", "job 7"));
    for bmc in [&poll, &job, &poll] {
        let refused = bmc.power().await.unwrap_err();
        assert!(matches!(refused.kind, ErrorKind::Unauthorised { .. }), "{refused}");
    }
    for bmc in [&poll, &job] {
        let locked = bmc.power().await.unwrap_err();
        assert!(matches!(locked.kind, ErrorKind::LockedOut { .. }), "{locked}");
        assert_eq!(locked.remedy(), Remedy::Stop);
        assert!(locked.to_string().contains("health poll (test)"), "{locked}");
    }
    // Other credentials half-open it, and the first success closes it.
    gated(&target, &gate, PASSWORD, "operator ada").power().await.unwrap();
    assert_eq!(gate.view().breaker, BreakerState::Closed);
}

#[tokio::test]
async fn three_refusals_open_it_for_all_users_of_the_simulator_and_not_one_more_reaches_it() {
    let target = Target::simulator().await;
    let bmc = Arc::clone(target.sim());
    three_refusals_open_the_breaker_for_all_users(Some(target)).await;
    assert_eq!(bmc.refused_logins(), 3);
}

#[tokio::test]
async fn three_refusals_open_it_for_all_users_of_the_redfish_emulator() {
    three_refusals_open_the_breaker_for_all_users(Target::redfish("LATTICE_TEST_REDFISH", 1)).await;
}

#[tokio::test]
async fn three_refusals_open_it_for_all_users_of_ipmi_sim() {
    let target = Target::ipmi("LATTICE_TEST_IPMI_SIM", CipherSuite::Three, 1);
    three_refusals_open_the_breaker_for_all_users(target).await;
}

#[tokio::test]
async fn three_refusals_open_it_for_all_users_of_pyghmi() {
    let target = Target::ipmi("LATTICE_TEST_PYGHMI", CipherSuite::Seventeen, 1);
    three_refusals_open_the_breaker_for_all_users(target).await;
}

#[tokio::test]
async fn a_half_open_breaker_opens_at_the_next_refusal_and_an_operator_closes_it() {
    let target = Target::simulator().await;
    let gate = Arc::new(Gate::default());
    for _ in 0..3 {
        gated(&target, &gate, "wrong-one", "poll").power().await.unwrap_err();
    }
    let other = gated(&target, &gate, "wrong-two", "job 8");
    assert!(matches!(other.power().await.unwrap_err().kind, ErrorKind::Unauthorised { .. }));
    assert!(matches!(other.power().await.unwrap_err().kind, ErrorKind::LockedOut { .. }));
    target.sim().set_password("wrong-two");
    assert!(matches!(other.power().await.unwrap_err().kind, ErrorKind::LockedOut { .. }), "only a reset closes it");
    gate.reset_breaker();
    other.power().await.unwrap();
}

#[tokio::test]
async fn a_bmc_that_hangs_holds_its_queue_up_visibly_and_gives_it_free_when_the_caller_leaves() {
    let target = Target::simulator().await;
    let gate = BmcGates::default().of("127.0.0.1".parse().unwrap(), 1);
    target.sim().add(BmcFault::Hangs);
    let (poll, job) = (gated(&target, &gate, PASSWORD, "health poll"), gated(&target, &gate, PASSWORD, "job 7"));
    let hanging = tokio::spawn(async move { poll.power().await });
    let is_running = || gate.view().running.is_some();
    tokio::time::timeout(Duration::from_secs(5), until(is_running)).await.unwrap();
    let waiting = tokio::spawn(async move { job.order(PowerOrder::On).await });
    tokio::time::timeout(Duration::from_secs(5), until(|| gate.view().waiting.len() == 1)).await.unwrap();
    let view = gate.view();
    assert_eq!(view.running.unwrap().caller.who, "health poll");
    assert_eq!((view.waiting[0].caller.who.as_str(), view.waiting[0].caller.why.as_str()), ("job 7", "test"));
    target.sim().repair();
    hanging.abort();
    waiting.await.unwrap().unwrap();
    let view = gate.view();
    assert!(view.running.is_none() && view.waiting.is_empty(), "{view:?}");
    assert!(target.sim().is_on());
}

#[tokio::test]
async fn a_full_queue_sends_callers_away_for_later() {
    let target = Target::simulator().await;
    let gate = Arc::new(Gate::default());
    target.sim().add(BmcFault::Hangs);
    let callers: Vec<_> = (0..17)
        .map(|n| {
            let bmc = gated(&target, &gate, PASSWORD, &format!("job {n}"));
            tokio::spawn(async move { bmc.power().await })
        })
        .collect();
    tokio::time::timeout(Duration::from_secs(5), until(|| gate.view().waiting.len() == 16)).await.unwrap();
    let late = gated(&target, &gate, PASSWORD, "job 99").power().await.unwrap_err();
    assert!(matches!(late.remedy(), Remedy::RepeatAfter(_)), "{late}");
    for caller in callers {
        caller.abort();
    }
}

#[tokio::test]
async fn a_forbidden_or_refused_call_is_no_refusal_of_the_credential() {
    let target = Target::simulator().await;
    let gate = Arc::new(Gate::default());
    let bmc = gated(&target, &gate, PASSWORD, "job 7");
    for _ in 0..4 {
        bmc.erase("/redfish/v1/nothing", "nvme0").await.unwrap_err();
    }
    assert_eq!(bmc.power().await.unwrap().fact(), PowerFact::Off);
}

async fn until(met: impl Fn() -> bool) {
    while !met() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A row of node `node`, set at the beginning of time.
fn row(node: u128, generation: u64, breaker: BreakerState) -> Bmc {
    let way = BmcWay::Redfish { tls: BmcTls::Plain, system: None };
    let address = "127.0.0.1".parse().unwrap();
    Bmc {
        node: NodeId::new(uuid::Uuid::from_u128(node)),
        site: SiteId::new(uuid::Uuid::from_u128(1)),
        endpoint: BmcEndpoint { address, port: None, way, credential_path: "kv/bmc".to_owned() },
        refusals: if breaker == BreakerState::Closed { 0 } else { 3 },
        breaker,
        set_at: Timestamp::default(),
        set_by: "ada".to_owned(),
        generation: Generation(generation),
    }
}

fn open(since: Timestamp) -> BreakerState {
    BreakerState::Open { since, by: "health poll of another server".to_owned() }
}

#[tokio::test]
async fn what_another_server_opened_is_open_here_too_after_a_refusal_and_closed_only_by_a_later_login() {
    let target = Target::simulator().await;
    let gate = Arc::new(Gate::default());
    gate.adopt(&row(1, 1, BreakerState::Closed));
    let bmc = gated(&target, &gate, "wrong-one", "job 7");
    bmc.power().await.unwrap_err();
    let since = SystemClock.now();
    gate.adopt(&row(1, 2, open(since)));
    let locked = bmc.power().await.unwrap_err();
    assert!(matches!(locked.kind, ErrorKind::LockedOut { .. }), "{locked}");
    assert_eq!((target.sim().refused_logins(), gate.view().breaker), (1, open(since)));
    // A row that closed says that a login was taken there, or that an operator vouches for it.
    gate.adopt(&row(1, 3, BreakerState::Closed));
    gated(&target, &gate, PASSWORD, "job 7").power().await.unwrap();
    let earlier = Timestamp::from_millis(since.as_millis() - 1);
    gate.adopt(&row(1, 4, open(earlier)));
    assert_eq!(gate.view().breaker, BreakerState::Closed, "a login was taken since");
    gate.adopt(&row(1, 5, open(SystemClock.now() + Duration::from_secs(1))));
    assert!(matches!(gate.view().breaker, BreakerState::Open { .. }), "and refused after that");
}

#[test]
fn two_nodes_behind_one_bmc_do_not_undo_each_other_s_reset() {
    let gate = Gate::default();
    let since = Timestamp::from_millis(1_000);
    gate.adopt(&row(1, 9, open(since)));
    gate.adopt(&row(2, 2, BreakerState::Closed));
    assert_eq!(gate.view().breaker, open(since), "what never opened closes nothing");
    gate.adopt(&row(2, 3, open(since)));
    gate.adopt(&row(2, 4, BreakerState::Closed));
    assert_eq!(
        gate.view().breaker,
        BreakerState::Closed,
        "the reset of the one counts, however often the other changed"
    );
    gate.adopt(&row(1, 10, open(since)));
    assert_eq!(gate.view().breaker, BreakerState::Closed, "what was reset does not come back by the other");
    gate.adopt(&row(1, 11, open(Timestamp::from_millis(2_000))));
    assert_eq!(gate.view().breaker, open(Timestamp::from_millis(2_000)), "what opened later does");
    let vouched = Bmc { set_at: Timestamp::from_millis(3_000), ..row(3, 1, BreakerState::Closed) };
    gate.adopt(&vouched);
    assert_eq!(gate.view().breaker, BreakerState::Closed, "it was set since");
}
