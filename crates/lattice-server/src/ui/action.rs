//! Buttons: each is a request of the API and the command line that makes it, with what happens then.

use askama::Template;
use askama::filters::HtmlSafe;
use lattice_api::allocation::{AllocationRow, AllocationStatus, AllocationVerb};
use lattice_api::batch::BatchAction;
use lattice_api::error::{ApiCall, NextStep, call_of};
use lattice_api::job::JobAction;
use lattice_api::node::{BootDevice, NodeVerb};
use lattice_core::site::SiteStatus;
use lattice_core::time::Timestamp;
use strum::VariantArray;

use super::shell::Shell;
use super::words::{When, ago, short_id};

/// A button with its command.
#[derive(Debug, Clone, PartialEq, Eq, Template)]
#[template(path = "button.html")]
pub struct Button {
    /// What it says.
    pub label: String,
    /// The same on the command line.
    pub command: String,
    /// The request that it makes.
    pub call: ApiCall,
    /// What happens then, in one line.
    pub effect: String,
    /// How it asks before it acts.
    pub manner: Manner,
    /// Values of the command that a person fills in: `<disk>`.
    pub blanks: Vec<String>,
    /// What may stand in a blank, as far as it is known.
    pub choices: Vec<String>,
    /// Whether the caller's role allows it.
    pub allowed: bool,
}
impl HtmlSafe for Button {}

/// How a button asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It acts at once.
    Plain,
    /// The one thing to do; it acts at once.
    Primary,
    /// It states its effect and asks first.
    Asks,
}

impl Button {
    fn body(&self) -> String {
        self.call.body.as_ref().map_or_else(String::new, ToString::to_string)
    }

    fn class(&self) -> &'static str {
        match self.manner {
            Manner::Plain => "",
            Manner::Primary => "primary",
            Manner::Asks => "danger",
        }
    }

    fn asks(&self) -> bool {
        self.manner == Manner::Asks || !self.blanks.is_empty()
    }

    fn blank_names(&self) -> String {
        self.blanks.join(" ")
    }

    fn choice_list(&self) -> String {
        self.choices.join("\n")
    }

    /// The same, standing out.
    #[must_use]
    pub fn primary(mut self) -> Self {
        if self.manner == Manner::Plain {
            self.manner = Manner::Primary;
        }
        self
    }

    /// The same, offering these for its blanks.
    #[must_use]
    pub fn choices(mut self, choices: &[String]) -> Self {
        if !self.blanks.is_empty() {
            self.choices = choices.to_vec();
        }
        self
    }
}

/// Where a page shows what a command prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageLink {
    /// Where it leads.
    pub href: String,
    /// What it says.
    pub name: String,
}

/// One thing that helps, as the page shows it.
#[derive(Debug, Clone, Template)]
#[template(path = "remedy.html")]
pub struct Remedy {
    /// The button, where one request does it.
    pub button: Option<Button>,
    /// The page that shows the same, where the command only reads.
    pub link: Option<PageLink>,
    /// The command, where there is no button.
    pub command: Option<String>,
    /// What it does, or what to wait for or put right.
    pub effect: String,
    /// When it moves by itself.
    pub until: Option<When>,
}
impl HtmlSafe for Remedy {}

impl Remedy {
    /// A step of an explanation, a failure or an incident.
    pub fn of(step: &NextStep, shell: &Shell) -> Self {
        let button = step.command.as_deref().and_then(|command| button_of(command, step, shell));
        let reads = step.command.as_deref().filter(|_| button.is_none());
        Self {
            link: reads.and_then(link_of),
            command: if button.is_none() { step.command.clone() } else { None },
            button,
            effect: step.effect.clone(),
            until: step.until.map(|until: Timestamp| ago(&until, &shell.at)),
        }
    }

    /// Tells it apart from its siblings.
    fn key(&self) -> &str {
        let button = self.button.as_ref().map(|button| &button.command);
        button.or(self.command.as_ref()).unwrap_or(&self.effect)
    }

    /// All steps, the first one standing out.
    pub fn all(steps: &[NextStep], shell: &Shell) -> Vec<Self> {
        let mut remedies: Vec<Self> = steps.iter().map(|step| Self::of(step, shell)).collect();
        if let Some(first) = remedies.first_mut() {
            first.button = first.button.take().map(Button::primary);
        }
        remedies
    }

    /// The same, offering these for blanks.
    #[must_use]
    pub fn choices(mut self, choices: &[String]) -> Self {
        self.button = self.button.map(|button| button.choices(choices));
        self
    }
}

/// `lattice explain node c07u43` prints what that node's page shows.
fn link_of(command: &str) -> Option<PageLink> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let (folder, name) = match words.as_slice() {
        ["lattice", "explain", "node", name]
        | ["lattice", "node", "status" | "show" | "get" | "timeline" | "history" | "tasks", name, ..] => {
            ("nodes", name)
        }
        ["lattice", "explain", "batch", name]
        | ["lattice", "onboarding", "batch", "show" | "get" | "watch", name, ..] => ("batches", name),
        ["lattice", "explain", "job", name] | ["lattice", "job", "show" | "get" | "watch", name, ..] => ("jobs", name),
        ["lattice", "site", "show" | "get", name] => ("sites", name),
        _ => return None,
    };
    Some(PageLink { href: format!("/ui/{folder}/{name}"), name: format!("Open {}", short_id(name)) })
}

/// Commands that only read are links of the page: they get no button.
fn button_of(command: &str, step: &NextStep, shell: &Shell) -> Option<Button> {
    let call = step.api.clone().or_else(|| call_of(command)).filter(|call| call.method != "GET")?;
    let (label, manner) = label_of(&call)?;
    let blanks = blanks(command);
    let label = match blanks.first().map(String::as_str) {
        Some("disk") => "Choose the boot disk".to_owned(),
        Some("system_id") => "Choose the machine".to_owned(),
        Some(_) | None => label,
    };
    Some(Button {
        label,
        command: command.to_owned(),
        blanks,
        choices: Vec::new(),
        call,
        effect: step.effect.clone(),
        manner,
        allowed: shell.may_act(),
    })
}

/// Words in angle brackets.
fn blanks(command: &str) -> Vec<String> {
    command.split_whitespace().filter_map(|word| word.strip_prefix('<')?.strip_suffix('>')).map(str::to_owned).collect()
}

fn label_of(call: &ApiCall) -> Option<(String, Manner)> {
    let parts: Vec<&str> = call.path.trim_start_matches("/api/v1/admin/").split('/').collect();
    match parts.as_slice() {
        ["nodes", _, "bootstrap"] => Some(("New bootstrap command".to_owned(), Manner::Plain)),
        ["nodes", _, "holds", kind] => Some((format!("Clear {}", kind.replace('_', " ")), Manner::Plain)),
        ["nodes", _, verb] => {
            let verb: NodeVerb = verb.parse().ok()?;
            let urgent = call.body.as_ref().and_then(|body| body.get("urgent")).is_some();
            let label = if urgent { "Drain urgently…" } else { verb_words(verb).0 };
            Some((label.to_owned(), manner_of(verb, urgent)))
        }
        ["onboardings", "batch", _, word] => {
            let (label, _, manner) = batch_words(word.parse().ok()?);
            Some((label.to_owned(), manner))
        }
        ["jobs", _, word] => {
            let action = actions().find(|action| action.verb() == *word)?;
            let (label, _, manner) = action_words(action);
            Some((label.to_owned(), manner))
        }
        ["nodes", _, "bmc", "reset-breaker"] => Some(("Try the credential again".to_owned(), Manner::Plain)),
        ["webhooks", _, "enable"] => Some(("Enable".to_owned(), Manner::Plain)),
        ["webhooks", _, "test"] => Some(("Test".to_owned(), Manner::Plain)),
        ["sites", _, "probe"] => Some(("Probe".to_owned(), Manner::Plain)),
        ["sites", _, "brake"] => Some(("Let go".to_owned(), Manner::Asks)),
        ["sites", name] | ["sites", _, "profiles", name] => {
            let disables = call.body.as_ref().is_some_and(|body| body["status"] == "disabled");
            let (word, manner) = if disables { ("Disable", Manner::Asks) } else { ("Enable", Manner::Plain) };
            Some((format!("{word} {name}"), manner))
        }
        ["allocations", _, "release"] => Some(("Release".to_owned(), Manner::Asks)),
        ["allocations", _, "requeue"] => Some(("Queue again".to_owned(), Manner::Plain)),
        _ => None,
    }
}

fn actions() -> impl Iterator<Item = JobAction> {
    JobAction::VARIANTS.iter().copied()
}

/// A verb that a node's states allow, on a node of that name.
pub fn node_button(verb: NodeVerb, hostname: &str, shell: &Shell) -> Button {
    let (label, effect) = verb_words(verb);
    let command = verb.command(hostname);
    let path = format!("/api/v1/admin/nodes/{hostname}/{verb}");
    Button {
        label: label.to_owned(),
        call: call_of(&command).unwrap_or_else(|| post(path)),
        command,
        effect: effect.to_owned(),
        manner: manner_of(verb, false),
        blanks: Vec::new(),
        choices: Vec::new(),
        allowed: shell.may_act(),
    }
}

/// Boots a node again, once from what is chosen.
pub fn boot_from_button(hostname: &str, shell: &Shell) -> Button {
    let command = format!("lattice node reboot {hostname} --boot <device>");
    Button {
        label: "Reboot from…".to_owned(),
        call: call_of(&command).unwrap_or_else(|| post(format!("/api/v1/admin/nodes/{hostname}/reboot"))),
        command,
        effect: "its BMC power-cycles it and has it start from there, once; the start after that is as always"
            .to_owned(),
        manner: Manner::Asks,
        blanks: vec!["device".to_owned()],
        choices: BootDevice::VARIANTS.iter().map(ToString::to_string).collect(),
        allowed: shell.may_act(),
    }
}

/// Drains a node, and stops what still runs after a time; of a drain that runs, it sets that time anew.
pub fn drain_until_button(label: &str, hostname: &str, shell: &Shell) -> Button {
    let command = format!("lattice node drain {hostname} --deadline <deadline>");
    Button {
        label: label.to_owned(),
        call: call_of(&command).unwrap_or_else(|| post(format!("/api/v1/admin/nodes/{hostname}/drain"))),
        command,
        effect:
            "it gets no new work; what still runs after that time is stopped, and queued again elsewhere unless its \
            policy is never"
                .to_owned(),
        manner: Manner::Asks,
        blanks: vec!["deadline".to_owned()],
        choices: ["30m", "2h", "8h"].map(str::to_owned).to_vec(),
        allowed: shell.may_act(),
    }
}

/// What an operator can ask of an allocation that stands there.
pub fn allocation_button(row: &AllocationRow, shell: &Shell) -> Option<Button> {
    let (verb, label, effect, manner) = match row.status {
        AllocationStatus::Requested => {
            (AllocationVerb::Release, "Release", format!("{} does not get a node.", row.user), Manner::Asks)
        }
        AllocationStatus::Provisioning | AllocationStatus::Active => {
            let effect = format!("It is ended, for {}: SIGTERM, and SIGKILL after 30 s.", row.user);
            (AllocationVerb::Release, "Release", effect, Manner::Asks)
        }
        AllocationStatus::Failed => {
            let effect = format!("It waits for a node again, for {}.", row.user);
            (AllocationVerb::Requeue, "Queue again", effect, Manner::Plain)
        }
        AllocationStatus::Releasing | AllocationStatus::Released => return None,
    };
    Some(Button {
        label: label.to_owned(),
        command: format!("lattice allocation {verb} {}", row.id),
        call: post(format!("/api/v1/admin/allocations/{}/{verb}", row.id)),
        effect,
        manner,
        blanks: Vec::new(),
        choices: Vec::new(),
        allowed: shell.may_act(),
    })
}

/// Lets go of a site's brake.
pub fn let_go_button(site: &str, shell: &Shell) -> Button {
    Button {
        label: "Let go".to_owned(),
        command: format!("lattice site brake {site} --release"),
        call: ApiCall { method: "DELETE".to_owned(), path: format!("/api/v1/admin/sites/{site}/brake"), body: None },
        effect: "Running allocations of nodes that are down are requeued or failed.".to_owned(),
        manner: Manner::Asks,
        blanks: Vec::new(),
        choices: Vec::new(),
        allowed: shell.may_act(),
    }
}

/// An action that a job's status allows.
pub fn job_button(action: JobAction, job: impl std::fmt::Display, shell: &Shell) -> Button {
    let (label, effect, manner) = action_words(action);
    let verb = action.verb();
    Button {
        label: label.to_owned(),
        command: format!("lattice job {verb} {job}"),
        call: post(format!("/api/v1/admin/jobs/{job}/{verb}")),
        effect: effect.to_owned(),
        manner,
        blanks: Vec::new(),
        choices: Vec::new(),
        allowed: shell.may_act(),
    }
}

/// An action that a batch's status allows.
pub fn batch_button(action: BatchAction, batch: impl std::fmt::Display, shell: &Shell) -> Button {
    let (label, effect, manner) = batch_words(action);
    Button {
        label: label.to_owned(),
        command: format!("lattice onboarding batch {action} {batch}"),
        call: post(format!("/api/v1/admin/onboardings/batch/{batch}/{action}")),
        effect: effect.to_owned(),
        manner,
        blanks: Vec::new(),
        choices: Vec::new(),
        allowed: shell.may_act(),
    }
}

const fn batch_words(action: BatchAction) -> (&'static str, &'static str, Manner) {
    match action {
        BatchAction::Pause => ("Pause", "no further machine is started; those that run go on", Manner::Plain),
        BatchAction::Resume => ("Resume", "its machines start again as permits become free", Manner::Plain),
        BatchAction::Cancel => {
            ("Cancel…", "machines that are not done are undone as far as each one's rule says", Manner::Asks)
        }
    }
}

/// Clears a hold that is cleared by hand.
pub fn clear_hold_button(hostname: &str, kind: impl std::fmt::Display, shell: &Shell) -> Button {
    Button {
        label: "Clear".to_owned(),
        command: format!("lattice hold clear {hostname} {kind}"),
        call: ApiCall {
            method: "DELETE".to_owned(),
            path: format!("/api/v1/admin/nodes/{hostname}/holds/{kind}"),
            body: None,
        },
        effect: "lets it be scheduled again, unless something else stands against it".to_owned(),
        manner: Manner::Plain,
        blanks: Vec::new(),
        choices: Vec::new(),
        allowed: shell.may_act(),
    }
}

/// Tries a site with its secrets.
pub fn probe_button(site: &str, shell: &Shell) -> Button {
    Button {
        label: "Probe".to_owned(),
        command: format!("lattice site probe {site}"),
        call: ApiCall { body: None, ..post(format!("/api/v1/admin/sites/{site}/probe")) },
        effect: "asks the provider who it is, with the stored secrets".to_owned(),
        manner: Manner::Plain,
        blanks: Vec::new(),
        choices: Vec::new(),
        allowed: shell.may_act(),
    }
}

/// Disables a site that is active, enables one that is disabled.
pub fn site_status_button(site: &str, status: SiteStatus, shell: &Shell) -> Button {
    let (label, verb, to, effect, manner) = match status {
        SiteStatus::Active => (
            "Disable…",
            "disable",
            SiteStatus::Disabled,
            "new onboardings are refused; those in flight go on",
            Manner::Asks,
        ),
        SiteStatus::Disabled => {
            ("Enable", "enable", SiteStatus::Active, "new onboardings are accepted again", Manner::Plain)
        }
    };
    Button {
        label: label.to_owned(),
        command: format!("lattice site {verb} {site}"),
        call: ApiCall {
            method: "PATCH".to_owned(),
            path: format!("/api/v1/admin/sites/{site}"),
            body: Some(serde_json::json!({"status": to})),
        },
        effect: effect.to_owned(),
        manner,
        blanks: Vec::new(),
        choices: Vec::new(),
        allowed: shell.may_act(),
    }
}

fn post(path: String) -> ApiCall {
    ApiCall { method: "POST".to_owned(), path, body: Some(serde_json::json!({})) }
}

/// Label, and what happens then. The words of a confirmation are S1's where S1 has some.
const fn verb_words(verb: NodeVerb) -> (&'static str, &'static str) {
    match verb {
        NodeVerb::Drain => ("Drain", "it gets no new work; running work ends"),
        NodeVerb::Undrain => ("Undrain", "it is given back to scheduling once its health check passes"),
        NodeVerb::Disable => {
            ("Disable…", "running allocations will be requeued or failed; heartbeats do not undo it, enable does")
        }
        NodeVerb::Enable => ("Enable", "it is given back once its health check passes"),
        NodeVerb::Reboot => {
            ("Reboot…", "a job power-cycles it through its provider; a manual node is power-cycled by you, now")
        }
        NodeVerb::Reset => ("Reset", "that boot is given up: once its agent registers, its health check decides"),
        NodeVerb::Reimage => ("Reimage…", "its OS is replaced: what is on it is lost, and it enrols again"),
        NodeVerb::SecureErase => (
            "Erase drives…",
            "its BMC erases every drive that it lists: what is on them is destroyed, its OS too, and it stays off and held",
        ),
        NodeVerb::Quarantine => ("Quarantine…", "it is blocked from scheduling until it is proven healthy"),
        NodeVerb::Recover => ("Recover", "it is taken back once its health check passes"),
        NodeVerb::Retire => ("Retire…", "it is drained and taken out of the fleet; its identity stays"),
        NodeVerb::Reactivate => ("Reactivate", "it is taken back with the same identity"),
        NodeVerb::Remove => ("Remove…", "the node's identity ends and cannot be reused"),
        NodeVerb::Resume => ("Resume its job", "the job that it waits for is resumed, or created anew"),
        NodeVerb::Withdraw => ("Withdraw…", "its bootstrap command stops working and the node is deleted"),
        NodeVerb::Wipe => {
            ("Wipe…", "what is on its GPUs, its NVMe drives and in its memory is destroyed, and it restarts")
        }
    }
}

const fn manner_of(verb: NodeVerb, urgent: bool) -> Manner {
    match verb {
        NodeVerb::Disable
        | NodeVerb::Reboot
        | NodeVerb::Reimage
        | NodeVerb::SecureErase
        | NodeVerb::Quarantine
        | NodeVerb::Retire
        | NodeVerb::Remove
        | NodeVerb::Wipe
        | NodeVerb::Withdraw => Manner::Asks,
        NodeVerb::Drain if urgent => Manner::Asks,
        NodeVerb::Drain
        | NodeVerb::Undrain
        | NodeVerb::Enable
        | NodeVerb::Reset
        | NodeVerb::Recover
        | NodeVerb::Reactivate
        | NodeVerb::Resume => Manner::Plain,
    }
}

const fn action_words(action: JobAction) -> (&'static str, &'static str, Manner) {
    match action {
        JobAction::RetryStage => ("Retry the stage", "runs the failed stage again, attempts from zero", Manner::Plain),
        JobAction::Resume => ("Resume", "continues from the last safe stage", Manner::Plain),
        JobAction::Rerun => ("Run again from the top", "each stage adopts what it observes", Manner::Plain),
        JobAction::RestartClean => {
            ("Restart clean…", "undoes what was done, then runs from the top in a new epoch", Manner::Asks)
        }
        JobAction::Cancel => ("Cancel…", "stops it for good and undoes what can be undone", Manner::Asks),
        JobAction::AdoptObservedState => {
            ("Adopt what is observed", "accepts what a fresh observation proves, and goes on from there", Manner::Plain)
        }
        JobAction::MarkManualInterventionRequired => {
            ("Hold for a person", "automation stops until somebody decides", Manner::Plain)
        }
    }
}
