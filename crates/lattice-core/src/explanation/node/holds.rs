//! What each hold of a node waits for, and what leads out of it.

use super::Story;
use crate::command::conformance;
use crate::explain::NextAction;
use crate::job::JobKind;
use crate::node::{Availability, DownCause, Hold, HoldKind};

impl Story<'_> {
    pub(super) fn hold(&mut self, hold: &Hold) {
        let host = self.node.hostname.clone();
        let until = hold.until.map_or_else(String::new, |until| format!(", until {until}"));
        let reason = if hold.reason.is_empty() { String::new() } else { format!(": {}", hold.reason) };
        let owner = hold.job.map_or_else(|| hold.by.name.clone(), |job| format!("job {job}"));
        self.unmet(format!("hold `{}`{reason}{until}", hold.kind), hold.since, &owner);
        match hold.kind {
            HoldKind::Disabled => self.disabled(&host),
            HoldKind::ConformanceDrift => self.drifted(hold, &host),
            HoldKind::Maintenance | HoldKind::AgentUpgrade | HoldKind::Rollout | HoldKind::Drift => {
                if hold.job.is_none() {
                    self.run(format!("lattice hold clear {host} {}", hold.kind), "lets it be scheduled again");
                }
            }
            HoldKind::WipeRequired => self.wipe_required(&host),
            HoldKind::WipeFailed => {
                self.run(format!("lattice admin node wipe {host} --force"), "wipes it again, from the first step");
                self.run(format!("lattice node disable {host} --yes"), "gives up on it: it stays out for good");
                self.next.push(NextAction::Fix { what: format!("or replace the hardware of {host} that refuses") });
            }
        }
    }

    /// It is approved, or brought back to what is; a hold by hand is cleared by hand.
    fn drifted(&mut self, hold: &Hold, host: &str) {
        if !conformance::is_ours(hold) {
            return self.run(format!("lattice hold clear {host} {}", hold.kind), "lets it be scheduled again");
        }
        self.remedy("drained", hold.since);
        let site = &self.context.site.name;
        self.run(
            format!("lattice site conformance list {site}"),
            "shows what is approved there, and what nodes report",
        );
        let approve = format!("lattice site conformance approve {site} --node {host}");
        self.run(approve, "approves the fingerprint that it has, for all nodes of its SKU at its site; the hold ends");
        let what = format!("or bring {host} back to what is approved: the hold ends when its agent reports it");
        self.next.push(NextAction::Fix { what });
    }

    /// It is given back once its agent is heard, and has registered since its work was taken from it.
    fn disabled(&mut self, host: &str) {
        let enable = format!("lattice node enable {host}");
        let heard = self.context.last_heard;
        let is_heard = heard.is_some_and(|at| self.now.since(at) <= self.times().window());
        let is_down_for_it = self.node.down_cause == Some(DownCause::Disabled);
        if !is_down_for_it || (is_heard && self.node.ownership.is_confirmed()) {
            return self.run(enable, "gives it back once its health check passes");
        }
        let down = self.node.availability_since;
        if is_heard {
            let what = "its agent has not registered since it was disabled: what ran there may still run";
            self.unmet(what.to_owned(), down, "agent");
            self.next.push(NextAction::Fix { what: "its agent registers again by itself in a moment".to_owned() });
        } else {
            self.unmet("its agent is not heard".to_owned(), heard.unwrap_or(down), "agent");
            self.wake(host);
        }
        self.run(enable, "then gives it back, once its agent is heard and its health check passes");
    }

    /// What brings a silent agent back.
    fn wake(&mut self, host: &str) {
        if self.is_out_of_service() {
            return;
        }
        let what = format!("see that {host} is powered and that lattice-agent runs on it");
        self.next.push(NextAction::Fix { what });
        if self.context.bmc.is_some() {
            self.run(format!("lattice node bmc check {host}"), "looks at it now");
        }
        self.reboot();
        self.bootstrap();
    }

    /// A wipe begins by itself; where it does not, this says what keeps it.
    fn wipe_required(&mut self, host: &str) {
        if self.node.hold(HoldKind::WipeFailed).is_some() {
            return;
        }
        match self.owner() {
            Some(job) if job.kind == JobKind::SensitiveWipe => self.follow(job),
            Some(job) => {
                let what = format!("its wipe waits for the {} job that owns it", job.kind);
                self.unmet(what, job.created_at, &format!("job {}", job.id));
                self.run(format!("lattice explain job {}", job.id), "says what that job waits for");
            }
            None => match self.node.state.availability {
                Availability::Ready | Availability::Degraded | Availability::Draining | Availability::Drained => {
                    self.next.push(NextAction::Fix { what: "its wipe begins by itself in a moment".to_owned() });
                }
                Availability::Unknown | Availability::Booting | Availability::Down | Availability::Failed => self
                    .next
                    .push(NextAction::Fix { what: format!("its wipe begins by itself once {host} is heard again") }),
            },
        }
    }
}
