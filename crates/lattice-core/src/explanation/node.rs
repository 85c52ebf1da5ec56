//! Why a node is not schedulable.

mod holds;

use super::{Explanation, Unmet};
use crate::allocation::{Allocation, AllocationStatus};
use crate::bmc::{Bmc, BmcReport, BreakerState};
use crate::command::boots::{self, Again};
use crate::command::remedy::Remedy;
use crate::component::ComponentReport;
use crate::explain::NextAction;
use crate::heartbeat::detector;
use crate::job::{Job, JobInput, JobKind, JobStatus, StageName};
use crate::node::availability::BOOT_FAILURES;
use crate::node::class::SilenceTimes;
use crate::node::machine::Health;
use crate::node::{Availability, DownCause, HoldKind, Node, Status};
use crate::site::{Site, SiteProvider};
use crate::time::{Timestamp, human};

/// What else is known about a node when it is explained.
#[derive(Debug, Clone)]
pub struct NodeContext<'a> {
    /// Its site.
    pub site: &'a Site,
    /// What is placed on it.
    pub placed: &'a [Allocation],
    /// Its owning job, or the last one that failed.
    pub job: Option<&'a Job>,
    /// When it was heard last, if this server knows.
    pub last_heard: Option<Timestamp>,
    /// Its health, judged against its SKU.
    pub health: &'a Health,
    /// Its BMC, if one is set, and what was seen of it last.
    pub bmc: Option<(&'a Bmc, Option<&'a BmcReport>)>,
    /// What State Manager says of it, at an OpenCHAMI site.
    pub component: Option<&'a ComponentReport>,
    /// Whether Lattice itself will reboot or drain it.
    pub remedy: &'a Remedy,
}

/// Explains a node: every unmet condition of being schedulable, and what would meet it.
pub fn node(node: &Node, context: &NodeContext, now: Timestamp) -> Explanation {
    let mut story = Story { node, context, now, because: Vec::new(), next: Vec::new() };
    story.job();
    story.status();
    story.availability();
    for hold in node.holds.iter().filter(|hold| hold.is_in_force(now)) {
        story.hold(hold);
    }
    story.finish()
}

struct Story<'a> {
    node: &'a Node,
    context: &'a NodeContext<'a>,
    now: Timestamp,
    because: Vec<Unmet>,
    next: Vec<NextAction>,
}

impl<'a> Story<'a> {
    fn unmet(&mut self, what: String, since: Timestamp, owner: &str) {
        self.because.push(Unmet { what, since: Some(since), owner: owner.to_owned(), class: None });
    }

    fn times(&self) -> SilenceTimes {
        self.context.site.heartbeat.times(self.node.effective_class())
    }

    fn run(&mut self, command: String, effect: &str) {
        let action = NextAction::run(command, effect);
        if !self.next.contains(&action) {
            self.next.push(action);
        }
    }

    fn job(&mut self) {
        let Some(job) = self.context.job else { return };
        let about = super::job(job, self.now);
        if !about.fine {
            self.because.extend(about.because);
            self.next.extend(about.next.into_iter().map(|next| awaited(job, next, self.now)));
        }
    }

    fn status(&mut self) {
        let node = self.node;
        let host = &node.hostname;
        let since = node.status_since;
        match node.state.status {
            Status::Active => {}
            Status::BootstrapIssued => {
                self.unmet("its bootstrap command was not run yet".to_owned(), since, "operator");
                self.run(
                    format!("lattice node bootstrap {host}"),
                    "prints the command to run on the host, with a new token",
                );
                self.run(format!("lattice node withdraw {host} --yes"), "gives up on it");
            }
            Status::Enrolling => self.unmet("it is being onboarded".to_owned(), since, "onboarding job"),
            // Offline follows availability: the reason is said there.
            Status::Offline => {}
            Status::Quarantined => {
                if node.hold(HoldKind::WipeFailed).is_some() {
                    return self.unmet("it is quarantined: it could not be wiped".to_owned(), since, "operator");
                }
                self.unmet("it is quarantined: blocked until proven healthy".to_owned(), since, "operator");
                self.run(format!("lattice node recover {host}"), "takes it back once its health check passes");
                self.run(format!("lattice node retire {host} --yes"), "drains it and takes it out of the fleet");
            }
            Status::Draining => {
                self.unmet("it is being retired".to_owned(), since, "retirement job");
                if !self.has_live_job() {
                    self.run(format!("lattice node resume {host}"), "resumes, or creates anew, the job that owns it");
                }
            }
            Status::Retired => {
                self.unmet("it is retired".to_owned(), since, "operator");
                match node.state.availability {
                    Availability::Drained => {
                        self.run(format!("lattice node reactivate {host}"), "takes it back, same identity");
                    }
                    Availability::Unknown
                    | Availability::Booting
                    | Availability::Ready
                    | Availability::Degraded
                    | Availability::Down
                    | Availability::Draining
                    | Availability::Failed => self.next.push(NextAction::Fix {
                        what: format!("to take it back, start {host}: once it is drained, it can be reactivated"),
                    }),
                }
                self.run(format!("lattice node remove {host} --yes"), "ends its identity");
            }
            Status::Removing => {
                self.unmet("it is being removed".to_owned(), since, "removal job");
                if !self.has_live_job() {
                    self.run(format!("lattice node resume {host}"), "resumes, or creates anew, the job that owns it");
                }
            }
            Status::Deleted => self.unmet("it is deleted; its identity is never reused".to_owned(), since, "nobody"),
        }
    }

    /// The job that owns it and is not over: until then another one is refused.
    fn owner(&self) -> Option<&'a Job> {
        self.context.job.filter(|job| job.state.status.is_live())
    }

    fn follow(&mut self, job: &Job) {
        if job.state.status.is_failed() {
            return self.run(format!("lattice explain job {}", job.id), "says what the job that owns it waits for");
        }
        let effect = match job.kind {
            JobKind::SensitiveWipe => "follows its wipe".to_owned(),
            JobKind::Onboarding
            | JobKind::Drain
            | JobKind::Retire
            | JobKind::Remove
            | JobKind::Reboot
            | JobKind::Reimage
            | JobKind::SecureErase
            | JobKind::BmcInvestigation => format!("follows the {} job that owns it", job.kind),
        };
        self.run(format!("lattice job watch {}", job.id), &effect);
    }

    fn has_live_job(&self) -> bool {
        self.context.job.is_some_and(|job| {
            matches!(job.state.status, JobStatus::Pending | JobStatus::Running | JobStatus::Compensating)
        })
    }

    fn availability(&mut self) {
        let node = self.node;
        let host = &node.hostname;
        let since = node.availability_since;
        match node.state.availability {
            Availability::Ready => {}
            Availability::Unknown => {
                if !matches!(node.state.status, Status::BootstrapIssued | Status::Deleted) {
                    self.unheard(since);
                }
            }
            Availability::Booting => self.booting(),
            Availability::Degraded => self.degraded(),
            Availability::Down => self.down(),
            Availability::Draining => self.emptying(since),
            Availability::Drained => {
                self.unmet("it is drained: empty, and safe for maintenance".to_owned(), since, "operator");
                if !matches!(node.state.status, Status::Draining | Status::Retired | Status::Removing) {
                    self.run(format!("lattice node undrain {host}"), "takes it back into scheduling");
                }
                self.silence();
            }
            Availability::Failed => self.failed(),
        }
    }

    /// Nobody misses the heartbeat of what was taken out of service on purpose.
    fn is_out_of_service(&self) -> bool {
        matches!(self.node.state.status, Status::Draining | Status::Retired | Status::Removing)
    }

    /// What still keeps it from being empty, each with what would end it.
    fn emptying(&mut self, since: Timestamp) {
        self.unmet("it is being emptied".to_owned(), since, "drain");
        for one in self.context.placed {
            let (unmet, next) = super::holds_up(one, self.now);
            self.because.push(unmet);
            self.next.extend(next);
        }
        self.urge();
        self.silence();
    }

    /// A drain that runs may become urgent, where that would help.
    fn urge(&mut self) {
        let helps =
            self.context.placed.iter().any(|one| one.status == AllocationStatus::Active && one.is_checkpointable());
        let runs = self.context.job.is_some_and(|job| {
            matches!(job.state.status, JobStatus::Pending | JobStatus::Running)
                && matches!(job.input, JobInput::Drain { urgent: false, .. })
        });
        if helps && runs {
            let command = format!("lattice node drain {} --urgent --yes", self.node.hostname);
            self.run(command, "asks what can save its state to, and it goes on elsewhere");
        }
    }

    /// A reboot is refused while a job owns it: that job is what moves it.
    fn reboot(&mut self) {
        if self.is_out_of_service() {
            return;
        }
        if let Some(job) = self.owner() {
            return self.follow(job);
        }
        let effect = match self.context.site.provider {
            SiteProvider::Maas(_) | SiteProvider::Lxd(_) => {
                "a job power-cycles it through its provider, and watches that it comes back"
            }
            SiteProvider::Openchami(_) => "a job power-cycles it through its site, and watches that it comes back",
            SiteProvider::Manual => {
                "says that you power-cycle it now, by hand; it fails unless its agent registers in time"
            }
        };
        let by_bmc = "a job power-cycles it through its BMC, and watches that it comes back";
        let effect = if self.context.bmc.is_some() { by_bmc } else { effect };
        self.run(format!("lattice node reboot {} --yes", self.node.hostname), effect);
    }

    fn bootstrap(&mut self) {
        self.run(
            format!("lattice node bootstrap {}", self.node.hostname),
            "gives its host a new identity, if its certificate expired or was revoked",
        );
    }

    fn booting(&mut self) {
        let node = self.node;
        let unless = if node.boot_failures > 0 { "its health check passes" } else { "its agent registers" };
        let what = node.deadline.map_or_else(
            || "it is booting".to_owned(),
            |deadline| format!("it is booting; failed in {} unless {unless}", human(deadline.since(self.now))),
        );
        self.unmet(what, node.availability_since, "agent");
        if node.boot_failures > 0 {
            self.came_up_ill();
        }
        self.component();
        self.health();
    }

    /// Who boots it again, or why nobody does.
    fn came_up_ill(&mut self) {
        let node = self.node;
        let since = node.updated_at;
        self.unmet(format!("boot {} of {BOOT_FAILURES} came up ill", node.boot_failures), since, "host");
        let can_switch = self.context.site.can_switch(self.context.bmc.is_some());
        let why = match (self.owner(), boots::again(node, self.owner().is_some(), can_switch, self.now)) {
            (Some(job), _) => return self.follow(job),
            (None, Again::Never(why)) => why,
            (None, Again::Due | Again::ByItsJob) => "the job that would is over".to_owned(),
        };
        self.unmet(format!("it is not booted again by itself: {why}"), since, "operator");
        self.next.push(NextAction::Fix { what: boots::by_hand(&node.hostname) });
    }

    fn failed(&mut self) {
        let node = self.node;
        let what = match node.boot_failures {
            ill @ BOOT_FAILURES.. => format!("{ill} boots in a row came up ill: nothing boots it again by itself"),
            _ => "its boot failed".to_owned(),
        };
        self.unmet(what, node.availability_since, "operator");
        self.reboot();
        if self.owner().is_none() {
            let effect = "gives up on that boot: once its agent registers, its health check decides";
            self.run(format!("lattice node reset {}", node.hostname), effect);
        }
        self.component();
        self.health();
    }

    /// Never heard, or not since an operator gave up on a boot that failed.
    fn unheard(&mut self, since: Timestamp) {
        if self.node.boot_id.is_none() {
            return self.unmet("its agent was never heard".to_owned(), since, "agent");
        }
        self.unmet("its agent has not registered since it was reset".to_owned(), since, "agent");
        if self.node.state.status != Status::Enrolling {
            self.reboot();
        }
    }

    fn health(&mut self) {
        match self.context.health {
            Health::Passed | Health::NotReported => {}
            Health::Failed(reasons) => {
                for reason in reasons {
                    self.unmet(format!("health check: {reason}"), self.node.availability_since, "host");
                }
                self.next.push(NextAction::Fix {
                    what: "bring the host to what its SKU asks, or give it another SKU".to_owned(),
                });
            }
        }
    }

    fn degraded(&mut self) {
        let node = self.node;
        if let Some(issue) = &node.minor_issue {
            self.unmet(format!("minor issue: {issue}"), node.availability_since, "host");
            self.repair();
            return self.silence();
        }
        self.silent_since(self.context.last_heard.unwrap_or(node.availability_since));
    }

    /// A silence that lasts longer than the window takes it down, whatever else there is to say.
    fn silence(&mut self) {
        let window = self.times().window();
        if let Some(heard) = self.context.last_heard.filter(|heard| self.now.since(*heard) > window) {
            self.silent_since(heard);
        }
    }

    fn silent_since(&mut self, heard: Timestamp) {
        let watch = detector::watch(self.node, self.times(), heard, self.now);
        let left = watch.silence.map(|tolerated| (heard + tolerated).since(self.now)).unwrap_or_default();
        let silent = human(self.now.since(heard));
        self.unmet(format!("no heartbeat for {silent}; down in {} unless it returns", human(left)), heard, "agent");
        self.next.push(NextAction::WaitUntil { until: self.now + left, waiting_for: "its next heartbeat".to_owned() });
    }

    /// A minor issue ends when its agent says so; who repairs the host takes its work off it first.
    fn repair(&mut self) {
        let node = self.node;
        let host = &node.hostname;
        self.run(format!("lattice node show {host}"), "shows the issue, and what its agent found on the host");
        match self.owner() {
            Some(job) => self.follow(job),
            None if node.state.status == Status::Enrolling => {}
            None => self.run(format!("lattice node drain {host}"), "takes work off it before it is repaired"),
        }
        let what = "once it is drained, repair it; GPUs that are missing may be back after";
        self.next.push(NextAction::Fix { what: format!("{what} `lattice node reboot {host}`") });
    }

    fn down(&mut self) {
        let node = self.node;
        let host = &node.hostname;
        let since = node.availability_since;
        match node.down_cause {
            Some(DownCause::HeartbeatLost) => {
                let heard = self
                    .context
                    .last_heard
                    .map_or_else(String::new, |at| format!(", last heard {} ago", human(self.now.since(at))));
                self.unmet(format!("its heartbeat is lost{heard}"), since, "agent");
                if !self.is_out_of_service() {
                    self.next.push(NextAction::Fix {
                        what: format!(
                            "see that {host} is powered and that lattice-agent runs on it: it comes back by itself"
                        ),
                    });
                }
                self.remedy("rebooted", since);
                self.reboot();
                self.bootstrap();
            }
            Some(DownCause::CriticalHardware) => {
                self.hardware(since);
                self.reboot();
            }
            // The hold says why, and what leads out of it.
            Some(DownCause::Disabled | DownCause::WipeFailed) => {}
            None => self.unmet("it is down".to_owned(), since, "detector"),
        }
        self.brake(since);
        self.out_of_band();
        self.component();
        self.health();
    }

    /// Why Lattice itself does not reboot or drain it, or that it is about to.
    fn remedy(&mut self, what: &str, since: Timestamp) {
        match self.context.remedy {
            Remedy::NotOurs => {}
            Remedy::Never(why) => self.unmet(format!("it is not {what} by itself: {why}"), since, "operator"),
            Remedy::Later(why) => self.unmet(format!("it is not {what} by itself yet: {why}"), since, "automation"),
            Remedy::Reboot | Remedy::Drain => {
                self.unmet(format!("it is {what} by itself within seconds"), since, "automation");
            }
        }
    }

    fn brake(&mut self, since: Timestamp) {
        if let Some(until) = self.node.ownership.braked_until {
            let what = "a brake holds back what its loss does to running work".to_owned();
            self.unmet(format!("{what}, until {until}"), since, "brake");
            self.next.extend(super::allocation::braked(&self.context.site.name, until));
        }
    }

    /// The evidence that took it down, each piece with its age.
    fn hardware(&mut self, since: Timestamp) {
        let report = self.context.bmc.and_then(|(_, report)| report);
        let Some(report) = report.filter(|report| !report.critical.is_empty()) else {
            return self.unmet("its BMC reports a critical hardware failure".to_owned(), since, "hardware");
        };
        let source = report.health.as_ref().map_or("its BMC", |health| health.source.as_str());
        let seen = human(self.now.since(report.looked_at));
        for evidence in &report.critical {
            let what = format!("{source} says {evidence}, looked at {seen} ago");
            self.unmet(what, report.critical_at.unwrap_or(since), "hardware");
        }
        let parts: Vec<&str> = report.critical.iter().map(|evidence| evidence.part.as_str()).collect();
        self.next.push(NextAction::Fix { what: format!("repair or replace {}, then boot it", parts.join(", ")) });
    }

    /// What its BMC says of it, and how old that is: a node that is silent may be off, or only unreachable.
    fn out_of_band(&mut self) {
        let Some((bmc, report)) = self.context.bmc else { return };
        let host = self.node.hostname.clone();
        if let BreakerState::Open { since, by } = &bmc.breaker {
            let what =
                format!("the credential of its BMC was refused {} times, last by {by}: it is not tried", bmc.refusals);
            self.unmet(what, *since, "operator");
            self.run(format!("lattice node bmc reset-breaker {host}"), "has the same credential tried again");
        }
        let Some(report) = report else {
            return self.unmet("its BMC was not looked at yet".to_owned(), bmc.set_at, "bmc");
        };
        if let Some(power) = &report.power {
            self.unmet(format!("power {power}, {} ago", human(self.now.since(power.at))), power.at, "bmc");
        }
        if let Some(failure) = &report.failure {
            self.unmet(format!("its BMC cannot be read: {failure}"), report.looked_at, "bmc");
            self.run(format!("lattice node bmc check {host}"), "looks at it now");
        }
    }

    /// What State Manager says of it: another system's word, which proves nothing, and may tell where to look.
    fn component(&mut self) {
        let Some(report) = self.context.component else { return };
        let seen = human(self.now.since(report.looked_at));
        self.unmet(format!("{}, looked at {seen} ago", report.in_words()), report.said_since, "State Manager");
        if let Some(flag) = report.raised {
            let what = format!("find who raised the flag {flag} of {} in State Manager, and why", report.xname);
            self.next.push(NextAction::Fix { what });
        }
    }

    fn finish(self) -> Explanation {
        let schedulable = self.node.is_schedulable(self.now);
        let headline = match self.because.first() {
            _ if schedulable => "schedulable".to_owned(),
            Some(first) => format!("not schedulable: {}", first.what),
            None => format!("not schedulable: it is {}", self.node.state),
        };
        Explanation {
            subject: self.node.hostname.clone(),
            state: self.node.state.to_string(),
            headline,
            fine: schedulable,
            because: self.because,
            next: self.next,
        }
    }
}

/// What a job waits for, of a job that empties its node: it looks again every few seconds, and that time is not when the
/// wait ends. The deadline of a drain is, where it has one.
pub(super) fn awaited(job: &Job, next: NextAction, now: Timestamp) -> NextAction {
    if !matches!(job.state.stage, StageName::WaitForDrained | StageName::DrainNode | StageName::PrepareWipe) {
        return next;
    }
    match next {
        NextAction::WaitUntil { waiting_for, .. } => match job.drain_deadline().filter(|deadline| now < *deadline) {
            Some(until) => NextAction::WaitUntil { until, waiting_for },
            None => NextAction::Fix { what: format!("wait for {waiting_for}") },
        },
        other @ (NextAction::Run { .. } | NextAction::Fix { .. }) => other,
    }
}
