//! Power Control: transitions and readings, against the simulated one.

use std::sync::Arc;
use std::time::Duration;

use lattice_core::node::PowerFact;
use lattice_core::time::Clock;
use lattice_providers::error::ErrorKind;
use lattice_providers::machine::openchami::{OchamiClient, PowerOperation, Transition, TransitionId};
use lattice_sim::clock::SystemClock;
use lattice_sim::openchami::{PcsFault, SimPcs, serve};
use lattice_sim::stop::Stop;
use tokio::net::TcpListener;

use crate::harness::HandClock;
use crate::{NOWHERE, client, xname};

async fn power_control(nodes: &[&str], clock: Arc<dyn Clock>) -> (Arc<SimPcs>, OchamiClient, Stop) {
    let pcs = SimPcs::new(nodes, clock);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stop = serve(listener, Arc::clone(&pcs) as _);
    (pcs, client(NOWHERE, NOWHERE, Some(url)), stop)
}

async fn over(client: &OchamiClient, id: &TransitionId) -> Transition {
    let looks = async {
        loop {
            match client.transition(id).await.unwrap() {
                Transition::Running => tokio::time::sleep(Duration::from_millis(20)).await,
                over => return over,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), looks).await.unwrap()
}

#[tokio::test]
async fn power_goes_on_and_off_by_transitions_that_are_watched_to_their_end() {
    let clock = HandClock::at_start();
    let (pcs, client, _stop) = power_control(&["x1n0"], clock.clone()).await;
    let node = xname("x1n0");
    client.pcs_ready().await.unwrap();
    let takes = Duration::from_secs(1);
    pcs.set_duration(takes);
    assert_eq!(client.power(&node).await.unwrap().fact(), PowerFact::Off);
    let id = client.begin_power(&node, PowerOperation::On).await.unwrap();
    assert_eq!(client.transition(&id).await.unwrap(), Transition::Running);
    assert_eq!(client.power(&node).await.unwrap().fact(), PowerFact::Off, "begun is not done");
    clock.set(clock.now() + takes);
    assert_eq!(over(&client, &id).await, Transition::Succeeded);
    assert_eq!(client.power(&node).await.unwrap().fact(), PowerFact::On);
    let id = client.begin_power(&node, PowerOperation::ForceOff).await.unwrap();
    clock.set(clock.now() + takes);
    assert_eq!(over(&client, &id).await, Transition::Succeeded);
    assert!(!pcs.is_on("x1n0"));
}

#[tokio::test]
async fn a_completed_transition_whose_task_failed_is_a_power_failure_even_when_its_record_was_compressed() {
    let (pcs, client, _stop) = power_control(&["x1n0"], Arc::new(SystemClock)).await;
    let node = xname("x1n0");
    for (fault, compressed) in
        [(PcsFault::TaskFails, false), (PcsFault::Unsupported, false), (PcsFault::TaskFails, true)]
    {
        pcs.set_fault("x1n0", Some(fault));
        if compressed {
            pcs.compress();
        }
        let id = client.begin_power(&node, PowerOperation::On).await.unwrap();
        let failed = over(&client, &id).await.checked().unwrap_err();
        assert!(matches!(failed.kind, ErrorKind::PowerFailed { .. }), "{failed}");
        assert_eq!(client.power(&node).await.unwrap().fact(), PowerFact::Off);
    }
}

#[tokio::test]
async fn power_of_a_node_that_cannot_be_reached_or_is_not_known_is_unknown_with_its_reason() {
    let (pcs, client, _stop) = power_control(&["x1n0"], Arc::new(SystemClock)).await;
    pcs.set_fault("x1n0", Some(PcsFault::Unreachable));
    let reading = client.power(&xname("x1n0")).await.unwrap();
    assert_eq!(reading.to_string(), "unknown (pcs: no answer from the BMC)");
    assert_eq!(client.power(&xname("x2n0")).await.unwrap().fact(), PowerFact::Unknown);
    let refused = client.transition(&TransitionId("77".to_owned())).await.unwrap_err();
    assert!(refused.is_not_found(), "{refused}");
    let none = crate::client(NOWHERE, NOWHERE, None).power(&xname("x1n0")).await.unwrap_err();
    assert!(matches!(none.kind, ErrorKind::NotOffered { .. }), "{none}");
}
