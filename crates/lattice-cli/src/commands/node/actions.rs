//! The operator's verbs, with the confirmations that each needs. spec: S1 "Operator Commands", S2 3.3

use std::time::Duration;

use clap::Args;
use lattice_api::client::post;
use lattice_api::node::{ActOnNode, BootDevice, Disposal, NodeActionAnswer, NodeVerb};

use crate::failure::Failure;
use crate::output;
use crate::session::Session;
use crate::span;
use crate::watch::{self, Deadline};

/// Options of a verb that needs no others.
#[derive(Debug, Args)]
pub struct Plain {
    /// Hostname or id
    pub node: String,
    /// Why; kept in the audit
    #[arg(long, default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Options of every verb.
#[derive(Debug, Args)]
pub struct Act {
    /// Which node, and why
    #[command(flatten)]
    plain: Plain,
    /// Say what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Options of a verb that takes its time.
#[derive(Debug, Args)]
pub struct Wait {
    /// Which node, and why
    #[command(flatten)]
    act: Act,
    /// Wait until it is done, with progress
    #[arg(long)]
    wait: bool,
    /// How long
    #[command(flatten)]
    deadline: Deadline,
}

/// Options of `drain`.
#[derive(Debug, Args)]
pub struct Drain {
    /// Which node, why, and whether to wait
    #[command(flatten)]
    wait: Wait,
    /// Ask running work to checkpoint now; also of a drain that runs
    #[arg(long)]
    urgent: bool,
    /// Stop what still runs after this time, and queue it again elsewhere unless its policy is never: 30m, 2h; also of a
    /// drain that runs
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    deadline: Option<Duration>,
    /// Take the deadline of a drain that runs away
    #[arg(long, conflicts_with = "deadline")]
    no_deadline: bool,
}

/// Options of `retire`.
#[derive(Debug, Args)]
pub struct Retire {
    /// Which node, why, and whether to wait
    #[command(flatten)]
    wait: Wait,
    /// Give the machine back to its provider later
    #[arg(long)]
    release: bool,
}

/// Options of `reboot`.
#[derive(Debug, Args)]
pub struct Reboot {
    /// Which node, why, and whether to wait
    #[command(flatten)]
    wait: Wait,
    /// What its BMC has it start from, this once: pxe or disk
    #[arg(long, value_name = "DEVICE", value_parser = boot_device)]
    boot: Option<BootDevice>,
}

/// Options of `reimage`.
#[derive(Debug, Args)]
pub struct Reimage {
    /// Which node, why, and whether to wait
    #[command(flatten)]
    wait: Wait,
    /// The image, by the name that its site knows: a boot profile, or at a MAAS site a profile; the one of new nodes when
    /// it is not given
    #[arg(long, value_name = "NAME")]
    image: Option<String>,
}

/// Options of `secure-erase`.
#[derive(Debug, Args)]
pub struct SecureErase {
    /// Which node, why, and whether to wait
    #[command(flatten)]
    wait: Wait,
    /// A drive, by the name that `lattice node bmc check NODE` lists, or `all`; may be repeated
    #[arg(long = "drive", value_name = "NAME", required = true)]
    drives: Vec<String>,
    /// Leave the machine on: its BMC reaches its drives only then
    #[arg(long)]
    powered_on: bool,
}

/// Options of `lattice admin node wipe NODE`.
#[derive(Debug, Args)]
pub struct Wipe {
    /// Which node, why, and whether to wait
    #[command(flatten)]
    wait: Wait,
    /// Do it, without asking: also after a wipe that failed, and where none is needed
    #[arg(long)]
    force: bool,
}

/// Does a verb without options of its own.
///
/// # Errors
/// Refused or not confirmed.
pub async fn act(verb: NodeVerb, act: Act, session: &Session) -> Result<(), Failure> {
    let body = body(&act);
    perform(verb, &act.plain.node, &body, session).await.map(|_| ())
}

/// Does a verb, and waits for what it started.
///
/// # Errors
/// Refused, not confirmed, or it ended badly while it was waited for.
pub async fn wait(verb: NodeVerb, wait: Wait, session: &Session) -> Result<(), Failure> {
    let body = body(&wait.act);
    perform_and_wait(verb, &wait, &body, session).await
}

/// Empties a node.
///
/// # Errors
/// As [`wait`].
pub async fn drain(drain: Drain, session: &Session) -> Result<(), Failure> {
    let deadline_ms = drain.deadline.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
    let (urgent, no_deadline) = (drain.urgent.then_some(true), drain.no_deadline.then_some(true));
    let body = ActOnNode { urgent, deadline_ms, no_deadline, ..body(&drain.wait.act) };
    perform_and_wait(NodeVerb::Drain, &drain.wait, &body, session).await
}

/// Retires a node.
///
/// # Errors
/// As [`wait`].
pub async fn retire(retire: Retire, session: &Session) -> Result<(), Failure> {
    let disposal = retire.release.then_some(Disposal::Release);
    let body = ActOnNode { disposal, ..body(&retire.wait.act) };
    perform_and_wait(NodeVerb::Retire, &retire.wait, &body, session).await
}

/// Boots a node again.
///
/// # Errors
/// As [`wait`].
pub async fn reboot(reboot: Reboot, session: &Session) -> Result<(), Failure> {
    let body = ActOnNode { boot: reboot.boot, ..body(&reboot.wait.act) };
    perform_and_wait(NodeVerb::Reboot, &reboot.wait, &body, session).await
}

/// Replaces the OS of a node.
///
/// # Errors
/// As [`wait`].
pub async fn reimage(reimage: Reimage, session: &Session) -> Result<(), Failure> {
    let body = ActOnNode { image: reimage.image, ..body(&reimage.wait.act) };
    perform_and_wait(NodeVerb::Reimage, &reimage.wait, &body, session).await
}

/// Has drives of a node erased by its BMC.
///
/// # Errors
/// As [`wait`].
pub async fn secure_erase(erase: SecureErase, session: &Session) -> Result<(), Failure> {
    let powered_on = erase.powered_on.then_some(true);
    let body = ActOnNode { drives: Some(erase.drives), powered_on, ..body(&erase.wait.act) };
    perform_and_wait(NodeVerb::SecureErase, &erase.wait, &body, session).await
}

/// Wipes a node; without `--force` it is only said what would happen, with it nothing more is asked.
/// spec: S1 "Wipe Failure Handling"
///
/// # Errors
/// As [`wait`].
pub async fn wipe(wipe: Wipe, session: &Session) -> Result<(), Failure> {
    let force = wipe.force.then_some(true);
    let mut body = ActOnNode { force, ..body(&wipe.wait.act) };
    if force.is_none() {
        body.dry_run = Some(true);
        let node = &wipe.wait.act.plain.node;
        perform(NodeVerb::Wipe, node, &body, session).await?;
        eprintln!("nothing was done; to do it: lattice admin node wipe {node} --force");
        return Ok(());
    }
    perform_and_wait(NodeVerb::Wipe, &wipe.wait, &body, session).await
}

fn boot_device(word: &str) -> Result<BootDevice, String> {
    word.parse().map_err(|_| "is `pxe` or `disk`".to_owned())
}

fn body(act: &Act) -> ActOnNode {
    ActOnNode { reason: act.plain.reason.clone(), dry_run: act.dry_run.then_some(true), ..ActOnNode::default() }
}

async fn perform_and_wait(verb: NodeVerb, wait: &Wait, body: &ActOnNode, session: &Session) -> Result<(), Failure> {
    let node = &wait.act.plain.node;
    let answer = perform(verb, node, body, session).await?;
    if !wait.wait || wait.act.dry_run {
        return Ok(());
    }
    match (answer.job_id, verb) {
        (Some(job), _) => watch::job(session, &job.to_string(), wait.deadline).await.map(|_| ()),
        (None, NodeVerb::Drain) => watch::node(session, node, "drained", wait.deadline).await,
        (None, NodeVerb::Reboot) => watch::node(session, node, "ready", wait.deadline).await,
        (
            None,
            NodeVerb::Undrain
            | NodeVerb::Disable
            | NodeVerb::Enable
            | NodeVerb::Reset
            | NodeVerb::Reimage
            | NodeVerb::SecureErase
            | NodeVerb::Quarantine
            | NodeVerb::Recover
            | NodeVerb::Retire
            | NodeVerb::Reactivate
            | NodeVerb::Remove
            | NodeVerb::Resume
            | NodeVerb::Withdraw
            | NodeVerb::Wipe,
        ) => Ok(()),
    }
}

async fn perform(verb: NodeVerb, node: &str, body: &ActOnNode, session: &Session) -> Result<NodeActionAnswer, Failure> {
    let effect = verb.confirmation(body.urgent == Some(true), body.deadline_ms.is_some());
    let asks = body.dry_run != Some(true) && body.force != Some(true);
    if let Some(effect) = effect.filter(|_| asks) {
        session.confirm(&format!("{verb} {node}"), effect)?;
    }
    let call = post(&["nodes", node, &verb.to_string()]).json(body);
    let answer = session.ask::<NodeActionAnswer>(call).await?;
    session.print(&answer)?;
    Ok(answer.value)
}

impl output::Shown for NodeActionAnswer {
    fn text(&self, _: output::Look) -> String {
        let name = &self.node.row.hostname;
        let mut text = if self.before == self.after && self.changed && !self.effects.is_empty() {
            format!("{name}: {}\n", self.after)
        } else if self.before == self.after {
            format!("{name}: {} (unchanged)\n", self.after)
        } else if self.changed {
            format!("{name}: {} -> {}\n", self.before, self.after)
        } else {
            format!("{name}: {} would become {}\n", self.before, self.after)
        };
        for effect in &self.effects {
            text.push_str(&format!("  {effect}\n"));
        }
        for one in &self.allocations {
            let age = span::words(one.for_ms);
            text.push_str(&format!(
                "  allocation {} of {}, {} for {age}: {}\n",
                one.id, one.user, one.status, one.what
            ));
        }
        if let Some(usual) = &self.usually {
            let (half, most) = (span::words(usual.p50_ms), span::words(usual.p95_ms));
            text.push_str(&format!("  such a drain took {half} (p50) to {most} (p95), of {} done\n", usual.runs));
        }
        text
    }
    fn names(&self) -> Vec<String> {
        vec![self.node.row.hostname.clone()]
    }
    fn note(&self) -> Option<String> {
        self.job_id.filter(|_| self.changed).map(|job| format!("follow it: lattice job watch {job}"))
    }
}
