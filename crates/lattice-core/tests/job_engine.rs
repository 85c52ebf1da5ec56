//! The job engine's tables, enumerated, and its rules, one sentence each.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::time::Duration;

use lattice_core::explain::{Explain, NextAction};
use lattice_core::failure::FailureClass;
use lattice_core::ids::{JobId, LeaseEpoch, OpId, uuid_v7};
use lattice_core::job::flows::{self, DATASOURCE_LIKE, GENERIC, Restart};
use lattice_core::job::{
    Allowed, CompensateTo, Decisions, Disposition, Enter, Flow, FlowName, Input, JobState, JobStatus, Next, Op,
    OperatorAction, ParkedFor, Proof, Reentry, Refused, StageError, StageName, Stop, allowed_node_statuses,
    disposition, next, node_moves, recommended_next_action, step,
};
use lattice_core::node::Status;
use lattice_core::site::{MaasPolicy, OpenchamiPolicy};
use lattice_core::time::Timestamp;
use proptest::prelude::*;
use strum::VariantArray;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn after(seconds: u64) -> Timestamp {
    NOW + Duration::from_secs(seconds)
}

fn maas() -> Flow {
    flows::onboarding_maas(&MaasPolicy::default())
}

fn every_flow() -> Vec<Flow> {
    let lxd = r#"{"api_url": "https://lxd", "client_cert_path": "a", "client_key_path": "b",
        "server_cert_path": "c", "image": "noble"}"#;
    let hour = Duration::from_secs(3_600);
    vec![
        maas(),
        flows::onboarding_lxd(&serde_json::from_str(lxd).unwrap()),
        flows::onboarding_openchami(&OpenchamiPolicy::default()),
        flows::onboarding_manual(hour),
        flows::drain(hour),
        flows::retire(hour),
        flows::remove(),
        flows::remove_lxd(),
        flows::reboot(hour),
        flows::reboot_openchami(&OpenchamiPolicy::default()),
        flows::reimage_openchami(&OpenchamiPolicy::default()),
        flows::reimage_maas(&MaasPolicy::default()),
        flows::bmc_investigation(),
        wipe(),
        flows::secure_erase(),
    ]
}

fn wipe() -> Flow {
    flows::sensitive_wipe(after(86_400).since(NOW), after(1_800).since(NOW), Restart::Power(after(600).since(NOW)))
}

fn pending(flow: &Flow) -> JobState {
    JobState::pending(JobId::new(uuid_v7(NOW, [7; 10])), flow.first().name, NOW)
}

/// A running job at that stage, as the engine would have it there.
fn at(flow: &Flow, stage: StageName) -> JobState {
    let mut job = apply(flow, &pending(flow), Input::Start);
    while job.stage != stage {
        job = turn(flow, &job, |fence| Input::StageOk { fence });
    }
    job
}

fn apply(flow: &Flow, job: &JobState, input: Input) -> JobState {
    step(flow, job, &input, NOW).unwrap().unwrap_or_else(|| panic!("{input:?} changed nothing in {job:?}"))
}

/// One turn: claim, result.
fn turn(flow: &Flow, job: &JobState, result: impl Fn(LeaseEpoch) -> Input) -> JobState {
    turn_at(flow, job, NOW, result)
}

fn turn_at(flow: &Flow, job: &JobState, now: Timestamp, result: impl Fn(LeaseEpoch) -> Input) -> JobState {
    let fence = LeaseEpoch(job.fence.0 + 1);
    let claimed = step(flow, job, &Input::Claim { fence }, now).unwrap().expect("the claim is taken");
    step(flow, &claimed, &result(fence), now).unwrap().expect("the result is taken")
}

fn error(class: FailureClass, code: &str) -> StageError {
    StageError {
        class,
        error_code: code.to_owned(),
        message: "it broke".to_owned(),
        retry_after: None,
        choices: Vec::new(),
        recovery: None,
    }
}

/// One turn that fails.
fn fail(flow: &Flow, job: &JobState, class: FailureClass, code: &str) -> JobState {
    turn(flow, job, |fence| Input::StageErr { fence, error: error(class, code) })
}

fn op(n: i64, action: OperatorAction) -> Op {
    Op {
        request_id: OpId::new(uuid_v7(Timestamp::from_millis(n), [1; 10])),
        action,
        observed: None,
        decisions: Decisions::default(),
        lease_until: None,
    }
}

/// A MAAS onboarding in that status.
fn in_status(status: JobStatus) -> JobState {
    let flow = maas();
    match status {
        JobStatus::Pending => pending(&flow),
        JobStatus::Running => at(&flow, StageName::DeployViaMaas),
        JobStatus::FailedRetryable => {
            fail(&flow, &at(&flow, StageName::DeployViaMaas), FailureClass::SiteCapabilityMissing, "x")
        }
        JobStatus::FailedManualIntervention => {
            fail(&flow, &at(&flow, StageName::DeployViaMaas), FailureClass::StateAmbiguity, "x")
        }
        JobStatus::Compensating => {
            apply(&flow, &at(&flow, StageName::DeployViaMaas), Input::Op(op(1, OperatorAction::Cancel)))
        }
        JobStatus::Cancelled => apply(&flow, &pending(&flow), Input::Op(op(1, OperatorAction::Cancel))),
        JobStatus::Completed => {
            turn(&flow, &at(&flow, StageName::WaitForAgentEnrollment), |fence| Input::StageOk { fence })
        }
        JobStatus::Reconciled => {
            let enrolling = at(&flow, StageName::WaitForAgentEnrollment);
            apply(&flow, &fail(&flow, &enrolling, FailureClass::SiteCapabilityMissing, "x"), Input::LateSuccess)
        }
    }
}

#[test]
fn every_action_is_allowed_from_exactly_the_statuses_of_the_design() {
    // Columns: pending, running, completed, failed_retryable, failed_manual_intervention, cancelled, compensating,
    // reconciled. y: changes the job; =: already so, success without a change; -: refused.
    let rows = [
        (OperatorAction::RetryStage, "---y----"),
        (OperatorAction::Resume, "-y-yy---"),
        (OperatorAction::Rerun, "---yy---"),
        (OperatorAction::RestartClean, "---yy---"),
        (OperatorAction::Cancel, "yy-yy==-"),
        (OperatorAction::AdoptObservedState, "---yy---"),
        (OperatorAction::MarkManualInterventionRequired, "-y-y=---"),
    ];
    assert_eq!(rows.len(), OperatorAction::VARIANTS.len());
    for (action, expected) in rows {
        for (status, expected) in JobStatus::VARIANTS.iter().zip(expected.chars()) {
            let proof = Proof { proves: StageName::WaitForDeployed, at: NOW };
            let op = Op { observed: Some(proof), ..op(2, action) };
            let job = in_status(*status);
            let got = match (step(&maas(), &job, &Input::Op(op), NOW), action.allowed_from(*status)) {
                (Ok(Some(_)), Allowed::Yes) => 'y',
                (Ok(None), Allowed::AlreadySo) => '=',
                (Err(Refused::Status { .. }), Allowed::No) => '-',
                (got, allowed) => panic!("{action} from {status}: the table says {allowed:?}, the engine {got:?}"),
            };
            assert_eq!(got, expected, "{action} from {status}");
        }
    }
}

#[test]
fn every_input_changes_a_job_only_in_the_statuses_that_it_belongs_to() {
    // Columns as above; results come in an open turn with the right fence. y: changes the job.
    let fence = LeaseEpoch(1_000);
    let err = || error(FailureClass::UpstreamTransient, "x");
    let rows = [
        (Input::Start, "y-------"),
        (Input::Claim { fence: LeaseEpoch(1_001) }, "-y----y-"),
        (Input::IntentRecorded { fence }, "-y------"),
        (Input::StageOk { fence }, "-y------"),
        (Input::StageWaiting { fence, recheck_at: after(5), waiting_for: "it".to_owned() }, "-y----y-"),
        (Input::StageErr { fence, error: err() }, "-y------"),
        (Input::UndoOk { fence }, "------y-"),
        (Input::UndoErr { fence, error: err() }, "------y-"),
        (Input::Timer, "-y----y-"),
        (Input::Wake, "-y------"),
        (Input::LateSuccess, "---yy---"),
    ];
    for (input, expected) in rows {
        let got: String = JobStatus::VARIANTS
            .iter()
            .map(|status| JobState { fence, claimed: true, next_at: Some(NOW), ..in_status(*status) })
            .map(|job| if step(&maas(), &job, &input, NOW).unwrap().is_some() { 'y' } else { '-' })
            .collect();
        assert_eq!(got, expected, "{input:?}");
    }
}

#[test]
fn a_result_counts_once_and_only_in_its_own_turn() {
    let flow = maas();
    let job = at(&flow, StageName::CommissionNode);
    let fence = LeaseEpoch(job.fence.0 + 1);
    let claimed = apply(&flow, &job, Input::Claim { fence });
    let results = |fence| {
        [
            Input::StageOk { fence },
            Input::StageErr { fence, error: error(FailureClass::UpstreamTransient, "x") },
            Input::StageWaiting { fence, recheck_at: after(9), waiting_for: "it".to_owned() },
        ]
    };
    for result in results(fence) {
        let changed = apply(&flow, &claimed, result);
        for again in results(fence) {
            assert_eq!(step(&flow, &changed, &again, NOW), Ok(None), "{again:?}");
        }
    }
    for (old, new) in results(LeaseEpoch(fence.0 - 1)).into_iter().zip(results(LeaseEpoch(fence.0 + 1))) {
        assert_eq!(step(&flow, &claimed, &old, NOW), Ok(None));
        assert_eq!(step(&flow, &claimed, &new, NOW), Ok(None));
    }
    assert_eq!(step(&flow, &claimed, &Input::Claim { fence }, NOW), Ok(None), "a lease is not taken twice");
}

#[test]
fn every_failure_class_leads_where_the_specification_says() {
    use FailureClass as C;
    let manual = Disposition::Retry { then: Stop::Manual };
    let rows = [
        (C::InputConfigError, Disposition::FailRetryable, "rerun"),
        (C::SiteCapabilityMissing, Disposition::FailRetryable, "resume"),
        (C::UpstreamTransient, Disposition::Retry { then: Stop::Retryable }, "resume"),
        (C::BmcPowerFailure, manual, "resume"),
        (C::PxeDiscoveryFailure, manual, "resume"),
        (C::HardwareMismatch, Disposition::Manual, "resume"),
        (C::DeployCloudInitFailure, Disposition::FailRetryable, "resume"),
        (C::PostDeployConnectivityFailure, manual, "resume"),
        (C::HardwareSyncFailure, manual, "resume"),
        (C::AgentEnrollmentFailure, manual, "resume"),
        (C::StateAmbiguity, Disposition::Manual, "resume"),
    ];
    assert_eq!(rows.len(), FailureClass::VARIANTS.len());
    let (job, id) = (pending(&maas()), pending(&maas()).id);
    for (class, expected, words) in rows {
        assert_eq!(disposition(class), expected, "{class}");
        let advice = recommended_next_action(&maas(), &job, StageName::ConfigureStorage, &error(class, "x"));
        let NextAction::Run { command, .. } = advice else { panic!("{advice:?}") };
        let (verb, flag) = words.split_once(' ').unwrap_or((words, ""));
        assert_eq!(command, format!("lattice job {verb} {id} {flag}").trim_end());
    }
    let choices = vec!["nvme0n1".to_owned(), "nvme1n1".to_owned()];
    let missing = StageError { choices, ..error(C::HardwareMismatch, "x") };
    let asked = recommended_next_action(&maas(), &job, StageName::ConfigureStorage, &missing);
    let NextAction::Run { command, .. } = asked else { panic!("{asked:?}") };
    assert_eq!(command, format!("lattice job resume {id} --boot-disk nvme0n1"), "it runs as printed");
}

#[test]
fn a_stage_that_tries_until_its_time_is_over_fails_as_its_last_error_was() {
    let flow = maas();
    let seeding = at(&flow, StageName::EnsureHardwareSyncConfigured);
    let over = seeding.deadline.unwrap();
    let fail = |class, code| {
        turn_at(&flow, &seeding, over, |fence| Input::StageErr { fence, error: error(class, code) }).failure.unwrap()
    };
    let unreachable = fail(FailureClass::PostDeployConnectivityFailure, "no_ssh_address");
    assert_eq!(
        (unreachable.class, unreachable.error_code.as_str()),
        (FailureClass::PostDeployConnectivityFailure, "no_ssh_address")
    );
    let unseeded = fail(FailureClass::HardwareSyncFailure, "machine_token_missing");
    assert_eq!(
        (unseeded.class, unseeded.error_code.as_str()),
        (FailureClass::HardwareSyncFailure, "failed_hw_sync_seed")
    );
}

#[test]
fn the_time_of_a_wipe_counts_from_its_first_step_over_all_of_them_and_anew_when_an_operator_takes_it_up() {
    let flow = wipe();
    let began = at(&flow, StageName::ClearGpuMemory);
    assert_eq!((began.limit_at, began.deadline), (Some(after(1_800)), Some(after(1_800))));
    assert_eq!(at(&flow, StageName::PrepareWipe).limit_at, None, "the wait for running work does not count");
    let ok = |fence| Input::StageOk { fence };
    let scrubbing = turn_at(&flow, &turn_at(&flow, &began, after(600), ok), after(1_700), ok);
    assert_eq!((scrubbing.stage, scrubbing.deadline), (StageName::ScrubMemory, Some(after(1_800))));
    let off = turn_at(&flow, &scrubbing, after(1_750), ok);
    assert_eq!((off.stage, off.deadline), (StageName::PowerOff, Some(after(1_800))), "less than its own three minutes");
    let waits = |fence| Input::StageWaiting { fence, recheck_at: after(9_999), waiting_for: "it".to_owned() };
    let over = turn_at(&flow, &off, after(1_800), waits);
    let failure = over.failure.clone().unwrap();
    assert_eq!((over.status, failure.error_code.as_str()), (JobStatus::FailedManualIntervention, "wipe_timeout"));
    assert_eq!(node_moves(&flow, &off, &over, Status::Active), [Status::Quarantined]);
    let late = after(9_000);
    let resumed = step(&flow, &over, &Input::Op(op(2, OperatorAction::Resume)), late).unwrap().unwrap();
    assert_eq!((resumed.stage, resumed.limit_at), (StageName::PowerOff, Some(late + after(1_800).since(NOW))));
    let anew = step(&flow, &over, &Input::Op(op(2, OperatorAction::RestartClean)), late).unwrap().unwrap();
    assert_eq!((anew.stage, anew.epoch, anew.limit_at), (StageName::PrepareWipe, 1, None));
}

#[test]
fn a_wipe_that_had_not_begun_leaves_its_node_as_it_is_when_it_stops() {
    let flow = wipe();
    let waiting = at(&flow, StageName::PrepareWipe);
    let stopped = fail(&flow, &waiting, FailureClass::StateAmbiguity, "x");
    assert!(node_moves(&flow, &waiting, &stopped, Status::Active).is_empty());
    let cancelled = apply(&flow, &waiting, Input::Op(op(2, OperatorAction::Cancel)));
    assert!(node_moves(&flow, &waiting, &cancelled, Status::Active).is_empty());
    let erasing = at(&flow, StageName::EraseNvme);
    let cancelled = apply(&flow, &erasing, Input::Op(op(2, OperatorAction::Cancel)));
    assert_eq!(node_moves(&flow, &erasing, &cancelled, Status::Active), [Status::Quarantined]);
}

#[test]
fn an_error_after_the_time_of_a_wipe_ends_it_whatever_its_attempts() {
    let flow = wipe();
    let confirming = at(&flow, StageName::ConfirmWipe);
    let err = |fence| Input::StageErr { fence, error: error(FailureClass::UpstreamTransient, "sealed") };
    let again = turn_at(&flow, &confirming, after(1_799), err);
    assert_eq!((again.status, again.next_at), (JobStatus::Running, Some(after(1_800))), "no pause leads beyond it");
    let over = turn_at(&flow, &again, after(1_800), err);
    assert_eq!((over.status, over.failure.unwrap().error_code), (JobStatus::FailedManualIntervention, "sealed".into()));
}

#[test]
fn every_flow_is_sound() {
    for flow in every_flow() {
        let names: std::collections::BTreeSet<_> = flow.stages.iter().map(|stage| stage.name).collect();
        assert_eq!(names.len(), flow.stages.len(), "{}: a stage stands twice", flow.name);
        assert_eq!(flow.first().enter, Enter::InSequence);
        for (place, stage) in flow.stages.iter().enumerate() {
            let name = stage.name;
            assert!(!stage.timeout.after.is_zero() && stage.timeout.windows > 0, "{name} has no time");
            assert!(stage.timeout.error_code.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
            assert!(stage.reentry != Reentry::NeverBlind || stage.undo.is_some(), "{name} cannot be undone");
            let via = flow.back_edge.as_ref().and_then(|back| flow.position(back.via?));
            let resumes = stage.resume_at.map(|to| flow.position(to).expect("in the same flow"));
            assert!(resumes.is_none_or(|to| to < place || Some(to) == via), "{name} resumes ahead of itself");
            assert!(stage.undo.and_then(|undo| undo.until).is_none_or(|until| flow.position(until) > Some(place)));
            match stage.enter {
                Enter::InSequence => {}
                Enter::OnFailure { of, .. } => assert!(flow.position(of) < Some(place)),
                Enter::BackEdge => assert_eq!(flow.position(name), via),
            }
        }
        if let Some(back) = &flow.back_edge {
            let leads_back = |from: StageName| flow.position(back.to) < flow.position(from);
            assert!(back.via.is_none_or(leads_back) && back.from.iter().all(|from| leads_back(*from)), "it leads back");
        }
    }
    let named: Vec<_> = every_flow().iter().map(|flow| flow.name).collect();
    assert_eq!(named, FlowName::VARIANTS);
}

#[test]
fn maas_onboarding_has_the_16_stages_in_the_order_of_the_specification() {
    let names: Vec<_> = maas().stages.iter().map(|stage| stage.name.to_string()).collect();
    // spec: S2 4.2 names them, S5 4.3 orders them: the interface is set up before the payload is rendered.
    let expected = [
        "load_site_config",
        "resolve_power_credentials",
        "create_or_find_in_maas",
        "commission_node",
        "wait_for_ready",
        "configure_storage",
        "apply_roce_phase2",
        "ensure_pxe_interface_auto",
        "render_cloud_init",
        "deploy_via_maas",
        "wait_for_deployed",
        "classify_deploy_failure",
        "recover_for_datasource_retry",
        "ensure_hardware_sync_configured",
        "wait_for_hardware_sync_healthy",
        "wait_for_agent_enrollment",
    ];
    assert_eq!(names, expected);
}

#[test]
fn without_mishaps_a_machine_passes_14_stages_and_no_detour() {
    let flow = maas();
    let mut job = apply(&flow, &pending(&flow), Input::Start);
    let mut passed = 0;
    while job.status == JobStatus::Running {
        job = turn(&flow, &job, |fence| Input::StageOk { fence });
        passed += 1;
    }
    assert_eq!((job.status, passed), (JobStatus::Completed, 14));
    assert_eq!(next(&flow, &job, NOW), Next::Done);
}

/// The way back: what a release may have taken is looked at again before the next deployment.
fn again_up_to_deploy(flow: &Flow, mut job: JobState) -> JobState {
    let mut seen = Vec::new();
    while job.stage != StageName::DeployViaMaas {
        seen.push(job.stage);
        job = turn(flow, &job, |fence| Input::StageOk { fence });
    }
    let expected = [
        StageName::RecoverForDatasourceRetry,
        StageName::ConfigureStorage,
        StageName::ApplyRocePhase2,
        StageName::EnsurePxeInterfaceAuto,
        StageName::RenderCloudInit,
    ];
    assert_eq!(seen, expected);
    job
}

#[test]
fn a_datasource_failure_deploys_again_once_under_a_new_key_and_then_asks() {
    let flow = maas();
    let job = at(&flow, StageName::WaitForDeployed);
    let job = fail(&flow, &job, FailureClass::DeployCloudInitFailure, "failed_deployment");
    assert_eq!(job.stage, StageName::ClassifyDeployFailure);
    let job = fail(&flow, &job, FailureClass::DeployCloudInitFailure, DATASOURCE_LIKE);
    assert_eq!(job.stage, StageName::RecoverForDatasourceRetry);
    let job = again_up_to_deploy(&flow, job);
    let Next::Run { stage, key, intended, .. } = next(&flow, &job, NOW) else { panic!("{job:?}") };
    assert_eq!((stage, intended), (StageName::DeployViaMaas, false));
    assert_eq!(key, format!("onboarding_maas/{}/g0/r1/deploy_via_maas", job.id));
    let job = turn(&flow, &job, |fence| Input::StageOk { fence });
    let job = fail(&flow, &job, FailureClass::DeployCloudInitFailure, DATASOURCE_LIKE);
    assert_eq!((job.status, job.round), (JobStatus::FailedManualIntervention, 1));
}

#[test]
fn a_generic_deploy_failure_stops_and_resume_releases_and_deploys_again() {
    let flow = maas();
    let job = at(&flow, StageName::WaitForDeployed);
    let job = fail(&flow, &job, FailureClass::DeployCloudInitFailure, "failed_deployment");
    let job = fail(&flow, &job, FailureClass::DeployCloudInitFailure, GENERIC);
    assert_eq!(job.status, JobStatus::FailedRetryable);
    let job = apply(&flow, &job, Input::Op(op(2, OperatorAction::Resume)));
    assert_eq!(job.stage, StageName::RecoverForDatasourceRetry);
    let job = again_up_to_deploy(&flow, job);
    assert_eq!((job.stage, job.round), (StageName::DeployViaMaas, 1));
}

#[test]
fn errors_are_retried_with_a_growing_pause_and_then_stop() {
    let flow = maas();
    let mut job = at(&flow, StageName::CommissionNode);
    for pause in [10, 20] {
        job = fail(&flow, &job, FailureClass::BmcPowerFailure, "power_cycle_failed");
        assert_eq!((job.status, job.next_at), (JobStatus::Running, Some(after(pause))));
        assert_eq!(next(&flow, &job, NOW), Next::Sleep { until: after(pause) });
        assert_eq!(step(&flow, &job, &Input::Wake, NOW), Ok(None), "a pause after an error stands");
    }
    job = fail(&flow, &job, FailureClass::BmcPowerFailure, "power_cycle_failed");
    assert_eq!((job.status, job.attempt), (JobStatus::FailedManualIntervention, 3));
    assert_eq!(next(&flow, &job, NOW), Next::Park { why: ParkedFor::Operator });
}

#[test]
fn a_provider_may_ask_for_a_longer_pause_but_not_for_an_endless_one() {
    let flow = maas();
    let job = at(&flow, StageName::CommissionNode);
    for (asked, given) in [(40, 40), (1_000_000, 900)] {
        let error = StageError { retry_after: Some(after(asked)), ..error(FailureClass::UpstreamTransient, "busy") };
        let job = turn(&flow, &job, |fence| Input::StageErr { fence, error: error.clone() });
        assert_eq!(job.next_at, Some(after(given)));
    }
}

#[test]
fn a_timeout_is_judged_only_by_a_last_look() {
    let flow = maas();
    let job = at(&flow, StageName::WaitForReady);
    let looks = |at| move |fence| Input::StageWaiting { fence, recheck_at: at, waiting_for: "Ready".to_owned() };
    let deadline = after(45 * 60);
    let waiting = turn(&flow, &job, looks(deadline + Duration::from_secs(60)));
    assert_eq!(waiting.next_at, Some(deadline), "the last look is at the deadline");
    let late = deadline + Duration::from_secs(86_400);
    assert!(matches!(next(&flow, &waiting, late), Next::Run { .. }), "after a long outage it looks first");
    let found = turn_at(&flow, &waiting, late, |fence| Input::StageOk { fence });
    assert_eq!(found.stage, StageName::ConfigureStorage);
    let missed = turn_at(&flow, &waiting, late, looks(late));
    let failure = missed.failure.unwrap();
    assert_eq!(
        (missed.status, failure.error_code.as_str()),
        (JobStatus::FailedManualIntervention, "failed_commission_timeout")
    );
}

#[test]
fn enrolment_waits_a_second_window_before_it_asks() {
    let flow = maas();
    let job = at(&flow, StageName::WaitForAgentEnrollment);
    let look = |fence| Input::StageWaiting { fence, recheck_at: after(1), waiting_for: "the agent".to_owned() };
    let job = turn_at(&flow, &job, after(1_800), look);
    assert!(matches!(next(&flow, &job, after(1_800)), Next::Run { window: 2, attempt: 2, .. }), "{job:?}");
    let job = turn_at(&flow, &job, after(3_600), look);
    assert_eq!(job.status, JobStatus::FailedManualIntervention);
}

#[test]
fn a_stage_that_is_not_essential_leaves_a_warning_and_the_job_goes_on() {
    let flow = maas();
    let job = at(&flow, StageName::ApplyRocePhase2);
    let job = fail(&flow, &job, FailureClass::HardwareMismatch, "interface_not_found");
    assert_eq!(job.stage, StageName::EnsurePxeInterfaceAuto);
    assert_eq!(job.warnings[0].error_code, "interface_not_found");
    let job = fail(&flow, &at(&flow, StageName::ApplyRocePhase2), FailureClass::StateAmbiguity, "foreign_machine");
    assert_eq!(job.status, JobStatus::FailedManualIntervention, "doubt always stops");
}

#[test]
fn an_intent_survives_crashes_and_reruns_until_it_is_undone() {
    let flow = maas();
    let job = at(&flow, StageName::DeployViaMaas);
    let fence = LeaseEpoch(job.fence.0 + 1);
    let job = apply(&flow, &job, Input::Claim { fence });
    let job = apply(&flow, &job, Input::IntentRecorded { fence });
    assert_eq!(step(&flow, &job, &Input::IntentRecorded { fence }, NOW), Ok(None));
    assert!(matches!(next(&flow, &job, NOW), Next::Run { intended: true, observe: true, needs_intent: true, .. }));
    let job = apply(&flow, &job, Input::StageErr { fence, error: error(FailureClass::StateAmbiguity, "unclear") });
    let rerun = apply(&flow, &job, Input::Op(op(2, OperatorAction::Rerun)));
    assert_eq!(
        (rerun.stage, rerun.epoch, rerun.highest_stage),
        (StageName::LoadSiteConfig, 0, StageName::DeployViaMaas)
    );
    assert_eq!(rerun.intents.len(), 1);
    let clean = apply(&flow, &job, Input::Op(op(2, OperatorAction::RestartClean)));
    let clean = turn(&flow, &clean, |fence| Input::UndoOk { fence });
    assert_eq!((clean.status, clean.stage), (JobStatus::Compensating, StageName::RenderCloudInit));
    let clean = turn(&flow, &clean, |fence| Input::UndoOk { fence });
    assert_eq!((clean.status, clean.stage, clean.epoch), (JobStatus::Running, StageName::LoadSiteConfig, 1));
    assert!(clean.intents.is_empty());
}

#[test]
fn cancelling_releases_up_to_the_deployment_and_leaves_a_running_machine_alone() {
    // spec: S5 4.6; the last column is where the node goes.
    let rows = [
        (StageName::ConfigureStorage, &[][..], Status::Deleted),
        (StageName::RenderCloudInit, &[StageName::RenderCloudInit], Status::Deleted),
        (StageName::DeployViaMaas, &[StageName::DeployViaMaas, StageName::RenderCloudInit], Status::Deleted),
        (StageName::WaitForDeployed, &[StageName::DeployViaMaas, StageName::RenderCloudInit], Status::Deleted),
        (StageName::EnsureHardwareSyncConfigured, &[StageName::RenderCloudInit], Status::Quarantined),
        (StageName::WaitForAgentEnrollment, &[StageName::RenderCloudInit], Status::Quarantined),
    ];
    let flow = maas();
    for (stage, undone, node) in rows {
        let before = at(&flow, stage);
        let mut job = apply(&flow, &before, Input::Op(op(2, OperatorAction::Cancel)));
        let mut got = Vec::new();
        while job.status == JobStatus::Compensating {
            got.push(job.stage);
            job = turn(&flow, &job, |fence| Input::UndoOk { fence });
        }
        assert_eq!((got.as_slice(), job.status), (undone, JobStatus::Cancelled), "from {stage}");
        assert_eq!(node_moves(&flow, &before, &job, Status::Enrolling), [node], "from {stage}");
    }
}

#[test]
fn compensation_follows_the_furthest_stage_not_the_present_one() {
    let flow = maas();
    let job = fail(&flow, &at(&flow, StageName::WaitForDeployed), FailureClass::SiteCapabilityMissing, "x");
    let job = apply(&flow, &job, Input::Op(op(2, OperatorAction::Rerun)));
    let job = apply(&flow, &job, Input::Op(op(3, OperatorAction::Cancel)));
    assert_eq!((job.status, job.stage), (JobStatus::Compensating, StageName::DeployViaMaas));
}

#[test]
fn a_failed_undo_asks_and_cancelling_again_goes_on_with_it() {
    let flow = maas();
    let job = in_status(JobStatus::Compensating);
    let failed = turn(&flow, &job, |fence| Input::UndoErr { fence, error: error(FailureClass::StateAmbiguity, "x") });
    assert_eq!(failed.status, JobStatus::FailedManualIntervention);
    assert_eq!(failed.compensating_to, Some(CompensateTo::Cancelled));
    for action in [OperatorAction::Rerun, OperatorAction::AdoptObservedState] {
        let refused = step(&flow, &failed, &Input::Op(op(2, action)), NOW).unwrap_err();
        assert!(matches!(refused, Refused::CompensationBegan { .. }), "{refused}");
    }
    assert_eq!(step(&flow, &failed, &Input::LateSuccess, NOW), Ok(None), "what is half undone is not adopted");
    for action in [OperatorAction::Cancel, OperatorAction::Resume] {
        let again = apply(&flow, &failed, Input::Op(op(3, action)));
        assert_eq!((again.status, again.stage), (JobStatus::Compensating, StageName::DeployViaMaas), "{action}");
    }
}

#[test]
fn a_deployed_machine_is_restarted_cleanly_only_when_its_release_is_decided() {
    let flow = maas();
    let job = fail(&flow, &at(&flow, StageName::WaitForAgentEnrollment), FailureClass::StateAmbiguity, "x");
    let ask = op(2, OperatorAction::RestartClean);
    let refused = step(&flow, &job, &Input::Op(ask.clone()), NOW).unwrap_err();
    assert_eq!(refused.code().text(), "LAT0043");
    assert!(
        matches!(&refused.next_actions()[1], NextAction::Run { command, .. } if command.ends_with("--release-deployed"))
    );
    let decisions = Decisions { release_deployed: true, ..Decisions::default() };
    let job = apply(&flow, &job, Input::Op(Op { decisions, ..ask }));
    assert_eq!((job.status, job.stage), (JobStatus::Compensating, StageName::DeployViaMaas));
}

#[test]
fn adopting_needs_a_fresh_proof_and_ends_as_reconciled() {
    let flow = maas();
    let job = fail(&flow, &at(&flow, StageName::WaitForDeployed), FailureClass::StateAmbiguity, "x");
    let adopt =
        |observed| step(&flow, &job, &Input::Op(Op { observed, ..op(2, OperatorAction::AdoptObservedState) }), NOW);
    let proof = |proves, age| Some(Proof { proves, at: NOW - Duration::from_secs(age) });
    for refused in [None, proof(StageName::WaitForDeployed, 121), proof(StageName::CommissionNode, 0)] {
        assert!(matches!(adopt(refused), Err(Refused::NothingObserved { .. })), "{refused:?}");
    }
    let onward = adopt(proof(StageName::WaitForDeployed, 5)).unwrap().unwrap();
    assert_eq!((onward.status, onward.stage), (JobStatus::Running, StageName::EnsureHardwareSyncConfigured));
    let at_end = adopt(proof(StageName::WaitForAgentEnrollment, 5)).unwrap().unwrap();
    assert_eq!(at_end.status, JobStatus::Reconciled);
    assert_eq!(node_moves(&flow, &job, &at_end, Status::Quarantined), [Status::Enrolling, Status::Active]);
}

#[test]
fn late_enrolment_is_adopted_after_failure() {
    let flow = maas();
    let stopped = |stage| fail(&flow, &at(&flow, stage), FailureClass::StateAmbiguity, "x");
    let adopted = apply(&flow, &stopped(StageName::WaitForAgentEnrollment), Input::LateSuccess);
    assert_eq!((adopted.status, adopted.stage), (JobStatus::Reconciled, StageName::WaitForAgentEnrollment));
    // The agent does not prove that MAAS receives the hardware sync.
    let onward = apply(&flow, &stopped(StageName::WaitForDeployed), Input::LateSuccess);
    assert_eq!((onward.status, onward.stage), (JobStatus::Running, StageName::EnsureHardwareSyncConfigured));
    assert!(onward.adopted, "it ends as reconciled");
    for stage in [StageName::EnsureHardwareSyncConfigured, StageName::WaitForHardwareSyncHealthy] {
        assert_eq!(step(&flow, &stopped(stage), &Input::LateSuccess, NOW), Ok(None), "{stage}");
    }
    let frozen = op(2, OperatorAction::MarkManualInterventionRequired);
    let frozen = apply(&flow, &at(&flow, StageName::WaitForAgentEnrollment), Input::Op(frozen));
    assert_eq!(step(&flow, &frozen, &Input::LateSuccess, NOW), Ok(None), "only a person takes it up again");
}

#[test]
fn a_stage_that_knows_its_recovery_is_believed_and_a_running_os_is_named() {
    let flow = maas();
    let gone = StageError {
        recovery: Some(OperatorAction::RestartClean),
        ..error(FailureClass::StateAmbiguity, "machine_deleted")
    };
    for (stage, flag) in
        [(StageName::CreateOrFindInMaas, ""), (StageName::WaitForAgentEnrollment, " --release-deployed")]
    {
        let job = turn(&flow, &at(&flow, stage), |fence| Input::StageErr { fence, error: gone.clone() });
        let NextAction::Run { command, .. } = job.failure.unwrap().next_action else { panic!("a command") };
        assert_eq!(command, format!("lattice job restart-clean {}{flag}", job.id));
    }
}

#[test]
fn a_request_counts_once() {
    let flow = maas();
    let ask = Input::Op(op(2, OperatorAction::Resume));
    let resumed = apply(&flow, &in_status(JobStatus::FailedRetryable), ask.clone());
    let failed = fail(&flow, &resumed, FailureClass::SiteCapabilityMissing, "x");
    assert_eq!(step(&flow, &failed, &ask, NOW), Ok(None));
}

#[test]
fn what_an_operator_starts_begins_after_the_lease_of_the_turn_before() {
    let flow = maas();
    let job = at(&flow, StageName::DeployViaMaas);
    let ask = Op { lease_until: Some(after(30)), ..op(2, OperatorAction::Cancel) };
    let job = apply(&flow, &job, Input::Op(ask));
    assert_eq!(next(&flow, &job, NOW), Next::Sleep { until: after(30) });
    assert!(matches!(next(&flow, &job, after(30)), Next::Undo { .. }));
}

#[test]
fn resuming_a_running_job_takes_over_from_a_lost_driver_and_leaves_a_live_one_alone() {
    let flow = maas();
    let job = at(&flow, StageName::WaitForReady);
    let live = Op { lease_until: Some(after(30)), ..op(2, OperatorAction::Resume) };
    assert_eq!(step(&flow, &job, &Input::Op(live), NOW), Ok(None));
    let lost = apply(&flow, &job, Input::Op(op(3, OperatorAction::Resume)));
    assert_eq!(lost.fence.0, job.fence.0 + 1, "the lost driver's result is refused");
}

#[test]
fn a_decision_is_taken_by_the_stage_that_declared_it_and_by_no_other() {
    let flow = maas();
    let decisions = Decisions { boot_disk: Some("nvme0n1".to_owned()), ..Decisions::default() };
    let ask = Op { decisions, ..op(2, OperatorAction::Resume) };
    let job =
        fail(&flow, &at(&flow, StageName::ConfigureStorage), FailureClass::HardwareMismatch, "boot_disk_not_found");
    let resumed = apply(&flow, &job, Input::Op(ask.clone()));
    assert_eq!(resumed.decisions.boot_disk.as_deref(), Some("nvme0n1"));
    let refused = step(&flow, &in_status(JobStatus::FailedRetryable), &Input::Op(ask), NOW).unwrap_err();
    assert!(matches!(refused, Refused::DecisionUnknown { .. }), "{refused}");
}

#[test]
fn a_removal_that_fails_keeps_the_identity_and_goes_on_when_resumed() {
    let flow = flows::remove_lxd();
    let job = pending(&flow);
    let running = apply(&flow, &job, Input::Start);
    assert_eq!(node_moves(&flow, &job, &running, Status::Retired), [Status::Removing]);
    let failed = fail(&flow, &running, FailureClass::SiteCapabilityMissing, "x");
    assert_eq!(node_moves(&flow, &running, &failed, Status::Removing), [Status::Retired]);
    let resumed = apply(&flow, &failed, Input::Op(op(2, OperatorAction::Resume)));
    assert_eq!(node_moves(&flow, &failed, &resumed, Status::Retired), [Status::Removing]);
}

#[test]
fn job_and_node_statuses_go_together_as_the_specification_maps_them() {
    use JobStatus as J;
    use Status as S;
    // spec: S2 4.3
    let onboarding: [(J, &[S]); 5] = [
        (J::Running, &[S::Enrolling]),
        (J::FailedRetryable, &[S::Enrolling]),
        (J::FailedManualIntervention, &[S::Enrolling, S::Quarantined]),
        (J::Completed, &[S::Active]),
        (J::Reconciled, &[S::Active]),
    ];
    // spec: S2 5.3
    let removal: [(J, &[S]); 4] = [
        (J::Running, &[S::Removing]),
        (J::FailedRetryable, &[S::Retired]),
        (J::FailedManualIntervention, &[S::Retired, S::Quarantined]),
        (J::Completed, &[S::Deleted]),
    ];
    for flow in [FlowName::OnboardingMaas, FlowName::OnboardingLxd, FlowName::OnboardingOpenchami] {
        onboarding
            .iter()
            .for_each(|(job, nodes)| assert_eq!(allowed_node_statuses(flow, *job), *nodes, "{flow} {job}"));
    }
    for flow in [FlowName::Remove, FlowName::RemoveLxd] {
        removal.iter().for_each(|(job, nodes)| assert_eq!(allowed_node_statuses(flow, *job), *nodes, "{flow} {job}"));
    }
    // A live retirement: any status of S2 5.3's first row, but not retired before it is done.
    let running = allowed_node_statuses(FlowName::Retire, J::Running);
    assert_eq!(running, [S::Active, S::Offline, S::Quarantined, S::Draining]);
    for flow in FlowName::VARIANTS {
        for job in J::VARIANTS {
            assert!(!allowed_node_statuses(*flow, *job).is_empty(), "{flow} {job} stands beside no node");
        }
    }
}

#[test]
fn statuses_and_actions_are_spelt_as_in_the_specification() {
    let statuses: Vec<_> = JobStatus::VARIANTS.iter().map(ToString::to_string).collect();
    let actions: Vec<_> = OperatorAction::VARIANTS.iter().map(ToString::to_string).collect();
    assert_eq!(
        statuses.join(" "),
        "pending running completed failed_retryable failed_manual_intervention cancelled compensating reconciled"
    );
    assert_eq!(
        actions.join(" "),
        "retry_stage resume rerun restart_clean cancel adopt_observed_state mark_manual_intervention_required"
    );
}

#[test]
fn a_job_at_a_stage_that_the_table_lacks_waits_for_a_version_that_knows_it() {
    let job = at(&maas(), StageName::CommissionNode);
    assert_eq!(next(&flows::remove(), &job, NOW), Next::Park { why: ParkedFor::KnownStage });
}

fn any_input() -> impl Strategy<Value = Input> {
    let fence = (0..12_u64).prop_map(LeaseEpoch);
    let class = prop::sample::select(FailureClass::VARIANTS);
    let code = prop::sample::select(vec![DATASOURCE_LIKE, GENERIC, "x"]);
    let err = (class, code).prop_map(|(class, code)| error(class, code));
    let any_op = (0..40_i64, prop::sample::select(OperatorAction::VARIANTS), prop::sample::select(StageName::VARIANTS))
        .prop_map(|(n, action, proves)| Op { observed: Some(Proof { proves, at: NOW }), ..op(n, action) });
    prop_oneof![
        Just(Input::Start),
        fence.clone().prop_map(|fence| Input::Claim { fence }),
        fence.clone().prop_map(|fence| Input::IntentRecorded { fence }),
        fence.clone().prop_map(|fence| Input::StageOk { fence }),
        (fence.clone(), err.clone()).prop_map(|(fence, error)| Input::StageErr { fence, error }),
        (fence.clone(), 0..9_000_u64).prop_map(|(fence, seconds)| Input::StageWaiting {
            fence,
            recheck_at: after(seconds),
            waiting_for: "it".to_owned()
        }),
        fence.clone().prop_map(|fence| Input::UndoOk { fence }),
        (fence, err).prop_map(|(fence, error)| Input::UndoErr { fence, error }),
        Just(Input::Timer),
        Just(Input::Wake),
        Just(Input::LateSuccess),
        any_op.prop_map(Input::Op),
    ]
}

proptest! {
    #[test]
    fn any_inputs_in_any_order_leave_a_job_that_says_what_is_next(
        which in 0..7_usize,
        inputs in prop::collection::vec((any_input(), 0..4_000_u64, any::<bool>()), 1..120),
    ) {
        let flow = every_flow().swap_remove(which);
        let mut job = pending(&flow);
        let mut now = NOW;
        for (input, seconds, claims) in inputs {
            now = now + Duration::from_secs(seconds);
            if claims && let Ok(Some(claimed)) = step(&flow, &job, &Input::Claim { fence: LeaseEpoch(job.fence.0 + 1) }, now) {
                job = claimed;
            }
            let input = match input {
                Input::StageOk { .. } if claims => Input::StageOk { fence: job.fence },
                Input::UndoOk { .. } if claims => Input::UndoOk { fence: job.fence },
                Input::StageErr { error, .. } if claims => Input::StageErr { fence: job.fence, error },
                other => other,
            };
            let Ok(Some(changed)) = step(&flow, &job, &input, now) else { continue };
            prop_assert!(!job.status.is_terminal());
            prop_assert!(changed.fence >= job.fence && changed.epoch >= job.epoch);
            let json = serde_json::to_string(&changed).unwrap();
            prop_assert_eq!(&serde_json::from_str::<JobState>(&json).unwrap(), &changed, "a row is read as it was written");
            let is_failed = matches!(next(&flow, &changed, now), Next::Park { why: ParkedFor::Operator });
            prop_assert_eq!(is_failed, changed.status.is_failed());
            prop_assert_eq!(matches!(next(&flow, &changed, now), Next::Done), changed.status.is_terminal());
            let is_lost = matches!(next(&flow, &changed, now), Next::Park { why: ParkedFor::KnownStage });
            prop_assert!(!is_lost);
            if is_failed {
                let advice = &changed.failure.as_ref().unwrap().next_action;
                prop_assert!(matches!(advice, NextAction::Run { .. }), "{:?}", advice);
            }
            job = changed;
        }
    }
}
