//! `docs/jobs.md`: flows, statuses, operator actions and failure classes as the engine has them.

use std::time::Duration;

use lattice_core::failure::FailureClass;
use lattice_core::job::{
    Allowed, Attempts, Disposition, Enter, Failing, Flow, FlowName, JobStatus, OperatorAction, Reentry, Stage, Stop,
    UndoKind, disposition, flows,
};
use lattice_core::node::class::HeartbeatPolicy;
use lattice_core::site::{LxdSite, MaasPolicy, OpenchamiPolicy, SensitivePolicy};
use strum::VariantArray;

use super::table;
use crate::repository::SourceFile;

const PATH: &str = "docs/jobs.md";

const HEAD: &str = "\
# Jobs

Drawn from the tables in `lattice-core` by `cargo run -p xtask -- docs`; do not edit. Times are the defaults; sites may \
set most of them.
";

/// Patience of a drain in the tables: the server's default, as the flows take it from their input.
const PATIENCE: Duration = Duration::from_secs(24 * 3_600);

/// The document.
pub fn document() -> SourceFile {
    let mut text = [HEAD.to_owned(), actions(), classes()].join("\n");
    for name in FlowName::VARIANTS {
        text.push('\n');
        text.push_str(&flow(&flow_of(*name)));
    }
    SourceFile { path: PATH.to_owned(), text }
}

fn flow_of(name: FlowName) -> Flow {
    let policy = MaasPolicy::default();
    match name {
        FlowName::OnboardingMaas => flows::onboarding_maas(&policy),
        FlowName::OnboardingLxd => flows::onboarding_lxd(&lxd_defaults()),
        FlowName::OnboardingOpenchami => flows::onboarding_openchami(&OpenchamiPolicy::default()),
        FlowName::OnboardingManual => {
            flows::onboarding_manual(Duration::from_secs(policy.enrollment_token_ttl_seconds))
        }
        FlowName::Drain => flows::drain(PATIENCE),
        FlowName::Retire => flows::retire(PATIENCE),
        FlowName::Remove => flows::remove(),
        FlowName::RemoveLxd => flows::remove_lxd(),
        FlowName::Reboot => flows::reboot(HeartbeatPolicy::default().boot_timeout()),
        FlowName::RebootOpenchami => flows::reboot_openchami(&OpenchamiPolicy::default()),
        FlowName::ReimageOpenchami => flows::reimage_openchami(&OpenchamiPolicy::default()),
        FlowName::ReimageMaas => flows::reimage_maas(&policy),
        FlowName::BmcInvestigation => flows::bmc_investigation(),
        FlowName::SecureErase => flows::secure_erase(),
        FlowName::SensitiveWipe => flows::sensitive_wipe(
            PATIENCE,
            SensitivePolicy::default().wipe_timeout(),
            flows::Restart::Power(HeartbeatPolicy::default().boot_timeout()),
        ),
    }
}

/// Only its timeout matters here: five minutes, the default of the wire format.
fn lxd_defaults() -> LxdSite {
    LxdSite {
        api_url: String::new(),
        client_cert_path: String::new(),
        client_key_path: String::new(),
        server_cert_path: String::new(),
        project: String::new(),
        default_profile: String::new(),
        image: String::new(),
        agent_binary: None,
        enrollment_timeout_ms: 300_000,
        enrollment_token_ttl_seconds: 7_200,
    }
}

fn actions() -> String {
    let mut head = vec!["action"];
    head.extend(JobStatus::VARIANTS.iter().map(|status| <&str>::from(*status)));
    let rows = OperatorAction::VARIANTS.iter().map(|action| {
        let mut row = vec![format!("`lattice job {} JOB`", action.verb())];
        row.extend(JobStatus::VARIANTS.iter().map(|status| match action.allowed_from(*status) {
            Allowed::Yes => "yes".to_owned(),
            Allowed::AlreadySo => "already so".to_owned(),
            Allowed::No => "–".to_owned(),
        }));
        row
    });
    format!("## What an operator may ask, by status\n\n{}", table(&head, rows))
}

fn classes() -> String {
    let rows = FailureClass::VARIANTS.iter().map(|class| {
        let stop = |stop| match stop {
            Stop::Retryable => "`failed_retryable`",
            Stop::Manual => "`failed_manual_intervention`",
        };
        let leads_to = match disposition(*class) {
            Disposition::Retry { then } => format!("tries again as often as the stage says, then {}", stop(then)),
            Disposition::FailRetryable => stop(Stop::Retryable).to_owned(),
            Disposition::Manual => stop(Stop::Manual).to_owned(),
        };
        vec![format!("`{class}`"), leads_to]
    });
    format!("## Failure classes\n\n{}", table(&["class", "leads to"], rows))
}

fn flow(flow: &Flow) -> String {
    let head = [
        "stage",
        "entered",
        "again",
        "attempts",
        "at most",
        "too long means",
        "resume at",
        "undone by",
        "decisions",
        "node",
    ];
    let mut text =
        format!("## Flow `{}`, version {}\n\n{}", flow.name, flow.version, table(&head, flow.stages.iter().map(stage)));
    if let Some(back) = &flow.back_edge {
        let from: Vec<String> = back.from.iter().map(|stage| format!("`{stage}`")).collect();
        text.push_str(&format!(
            "\nA failure `{}` ({}) at {} leads{} back to `{}`, at most {} time{} by itself.\n",
            back.error_code,
            back.class,
            from.join(" or "),
            back.via.map_or_else(String::new, |via| format!(" through `{via}`")),
            back.to,
            back.max_rounds,
            if back.max_rounds == 1 { "" } else { "s" },
        ));
    }
    text
}

fn stage(stage: &Stage) -> Vec<String> {
    let decisions: Vec<String> = stage.decisions.iter().map(ToString::to_string).collect();
    let failing = match stage.failing {
        Failing::ByClass => "",
        Failing::ForOperator => ", for an operator",
        Failing::Continues => ", a warning only",
    };
    let windows = if stage.timeout.windows > 1 { format!("{} × ", stage.timeout.windows) } else { String::new() };
    let during = stage.node_during.map(|status| format!("{status} from its start"));
    let after = stage.node_after.map(|status| format!("{status} at its end"));
    let node: Vec<String> = during.into_iter().chain(after).collect();
    vec![
        format!("`{}`", stage.name),
        entered(stage.enter),
        again(stage.reentry).to_owned(),
        match stage.attempts {
            Attempts::Bounded(attempts) => attempts.to_string(),
            Attempts::UntilTimeout => "until its time is over".to_owned(),
        },
        format!("{windows}{}", span(stage.timeout.after)),
        format!("{} (`{}`){failing}", stage.timeout.class, stage.timeout.error_code),
        stage.resume_at.map_or_else(|| "here".to_owned(), |stage| format!("`{stage}`")),
        stage.undo.map(|undo| undone(undo.kind).to_owned()).unwrap_or_default(),
        decisions.join(", "),
        node.join(", "),
    ]
}

fn entered(enter: Enter) -> String {
    match enter {
        Enter::InSequence => "in order".to_owned(),
        Enter::OnFailure { of, class } => format!("when `{of}` failed with {class}"),
        Enter::BackEdge => "on the way back".to_owned(),
    }
}

const fn again(reentry: Reentry) -> &'static str {
    match reentry {
        Reentry::Pure => "only reads",
        Reentry::ObserveFirst => "observes first",
        Reentry::NeverBlind => "never blindly",
    }
}

const fn undone(kind: UndoKind) -> &'static str {
    match kind {
        UndoKind::RevokeEnrollmentToken => "revoking the enrolment token",
        UndoKind::ReleaseToReady => "releasing the machine to Ready",
        UndoKind::DeleteInstance => "deleting the instance",
        UndoKind::Undrain => "taking the drain back",
        UndoKind::RestoreBootParameters => "setting again what it booted before",
        UndoKind::AwaitErasure => "waiting for the drive that its BMC erases",
    }
}

fn span(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds > 0 && seconds.is_multiple_of(3_600) => format!("{} h", seconds / 3_600),
        seconds if seconds > 0 && seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_every_stage_and_every_class_is_there() {
        let text = document().text;
        for name in FlowName::VARIANTS {
            let flow = flow_of(*name);
            assert_eq!(flow.name, *name);
            assert!(text.contains(&format!("## Flow `{name}`")), "{name}");
            for stage in &flow.stages {
                assert!(text.contains(&format!("| `{}` |", stage.name)), "{}", stage.name);
            }
        }
        for class in FailureClass::VARIANTS {
            assert!(text.contains(&format!("| `{class}` |")), "{class}");
        }
    }

    #[test]
    fn actions_are_those_of_the_engine() {
        let text = actions();
        assert!(text.contains("| `lattice job retry-stage JOB` | – | – | – | yes |"), "{text}");
        assert!(text.contains("already so"), "{text}");
    }
}
