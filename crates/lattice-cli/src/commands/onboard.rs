//! `lattice onboard`: turn machines into nodes. spec: S5 4.1, 4.2, 10

use clap::{Args, Subcommand};
use lattice_api::client::{get, post};
use lattice_api::job::{JobQuery, JobRow};
use lattice_api::onboarding::{CreateOnboarding, OnboardingAccepted, OnboardingView};
use lattice_api::page::Page;

use super::{batch, job};
use crate::failure::{Failure, joined, step_texts};
use crate::output::{Look, Shown, facts};
use crate::paging::Paging;
use crate::session::Session;
use crate::vocabulary::word;
use crate::watch::Deadline;

/// What can be done with onboardings.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Onboard a machine of a MAAS region: commission, deploy, enrol
    Maas(Maas),
    /// Onboard an instance of an LXD server
    Lxd(Lxd),
    /// Onboard a machine of an OpenCHAMI system: it boots an image from the network, whose agent enrols
    Openchami(Openchami),
    /// Many machines in one request
    #[command(subcommand)]
    Batch(batch::Command),
    /// List onboardings, newest first
    List(List),
    /// Show an onboarding with its stages
    #[command(alias = "get")]
    Show(Show),
    /// Follow an onboarding until it ends; exit status 0 only if it ended well
    Watch(Watch),
}

/// What every onboarding needs.
#[derive(Debug, Args)]
pub struct Request {
    /// Hostname to give
    hostname: String,
    /// The site, by name or id
    #[arg(long)]
    site: String,
    /// What the machine must have
    #[arg(long)]
    sku: String,
    /// Class when nothing claims it: standard, sensitive or borrowed
    #[arg(long)]
    class: Option<String>,
    /// Why; kept in the audit
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
    /// Follow it until it ends, with progress
    #[arg(long, alias = "wait")]
    watch: bool,
    /// How long
    #[command(flatten)]
    deadline: Deadline,
}

/// A machine of a MAAS region.
#[derive(Debug, Args)]
pub struct Maas {
    /// What every onboarding needs
    #[command(flatten)]
    request: Request,
    /// Address of the BMC
    #[arg(long, value_name = "ADDRESS")]
    ipmi_ip: std::net::IpAddr,
    /// The profile, by name or id; the site's default one when it is not given
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// Hardware address of the PXE interface, where it is known; never needed
    #[arg(long, value_name = "MAC")]
    pxe_mac: Option<String>,
}

/// An instance of an LXD server.
#[derive(Debug, Args)]
pub struct Lxd {
    /// What every onboarding needs
    #[command(flatten)]
    request: Request,
}

/// A machine of an OpenCHAMI system, by at least one of its names.
#[derive(Debug, Args)]
#[group(id = "names", required = true, multiple = true, args = ["xname", "mac", "bmc"])]
pub struct Openchami {
    /// What every onboarding needs
    #[command(flatten)]
    request: Request,
    /// The component: x1000c0s1b0n0
    #[arg(long, value_name = "XNAME")]
    xname: Option<String>,
    /// Hardware address of the interface that it boots from
    #[arg(long, value_name = "MAC")]
    mac: Option<String>,
    /// Address of its BMC
    #[arg(long, value_name = "ADDRESS")]
    bmc: Option<std::net::IpAddr>,
    /// What it boots, by the name of a boot profile; what the site says when it is not given
    #[arg(long, value_name = "PROFILE")]
    boot_profile: Option<String>,
}

/// Which onboardings.
#[derive(Debug, Args)]
pub struct List {
    /// Only onboardings in this status; `failed` means both failed ones, `live` all that are not finished
    #[arg(long)]
    status: Option<String>,
    /// Only onboardings at this site
    #[arg(long)]
    site: Option<String>,
    /// Only onboardings of this batch, by its id
    #[arg(long)]
    batch: Option<String>,
    /// Only onboardings at this stage
    #[arg(long)]
    stage: Option<String>,
    /// Only onboardings whose failure is of this class
    #[arg(long, value_name = "CLASS")]
    failure: Option<String>,
    /// Only hosts whose names begin so
    #[arg(long)]
    prefix: Option<String>,
    /// Which page, and how long
    #[command(flatten)]
    page: Paging,
}

/// One onboarding to look at.
#[derive(Debug, Args)]
pub struct Show {
    /// Its id
    onboarding: String,
}

/// One onboarding to follow.
#[derive(Debug, Args)]
pub struct Watch {
    /// Its id
    onboarding: String,
    /// How long
    #[command(flatten)]
    deadline: Deadline,
}

/// Runs one of them.
///
/// # Errors
/// Refused, or it ended badly while it was followed.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Maas(Maas { request, ipmi_ip, profile, pxe_mac }) => {
            let machine = Machine { ipmi_ip: Some(ipmi_ip.to_string()), pxe_mac, profile, ..Machine::default() };
            start(request, machine, session).await
        }
        Command::Lxd(lxd) => start(lxd.request, Machine::default(), session).await,
        Command::Openchami(Openchami { request, xname, mac, bmc, boot_profile }) => {
            let ipmi_ip = bmc.map(|bmc| bmc.to_string());
            let machine = Machine { ipmi_ip, pxe_mac: mac, xname, boot_profile, ..Machine::default() };
            start(request, machine, session).await
        }
        Command::Batch(command) => batch::run(command, session).await,
        Command::List(list) => self::list(list, session).await,
        Command::Show(show) => session.show::<OnboardingView>(get(&["onboardings", &show.onboarding])).await,
        Command::Watch(watch) => job::follow(&watch.onboarding, watch.deadline, session).await,
    }
}

async fn list(list: List, session: &Session) -> Result<(), Failure> {
    let site_id = match &list.site {
        Some(site) => Some(session.client.site(site).await?.id),
        None => None,
    };
    let batch_id =
        list.batch.map(|id| id.parse().map_err(|error| Failure::refused(format!("--batch is not an id: {error}"))));
    let page = list.page.query();
    let query = JobQuery {
        cursor: page.cursor,
        limit: page.limit,
        status: list.status,
        site_id,
        batch_id: batch_id.transpose()?,
        stage: list.stage.map(|text| word("stage", &text)).transpose()?,
        failure_class: list.failure.map(|text| word("failure class", &text)).transpose()?,
        hostname_prefix: list.prefix,
        ..JobQuery::default()
    };
    session.show::<Page<JobRow>>(get(&["onboardings"]).query(&query)).await
}

/// What only machines of some kinds of sites have.
#[derive(Default)]
struct Machine {
    ipmi_ip: Option<String>,
    pxe_mac: Option<String>,
    profile: Option<String>,
    xname: Option<String>,
    boot_profile: Option<String>,
}

async fn start(request: Request, machine: Machine, session: &Session) -> Result<(), Failure> {
    let body = CreateOnboarding {
        site_id: request.site,
        profile_id: machine.profile,
        sku_id: request.sku,
        hostname: request.hostname,
        ipmi_ip: machine.ipmi_ip,
        pxe_mac: machine.pxe_mac,
        xname: machine.xname,
        boot_profile: machine.boot_profile,
        class: request.class.map(|text| word("class", &text)).transpose()?,
        reason: request.reason,
    };
    let answer = session.ask::<OnboardingAccepted>(post(&["onboardings"]).json(&body)).await?;
    if request.watch {
        return job::follow(&answer.value.onboarding_id.to_string(), request.deadline, session).await;
    }
    session.print(&answer)
}

impl Shown for OnboardingAccepted {
    fn text(&self, _: Look) -> String {
        format!("onboarding {} is {}, node {}\n", self.onboarding_id, self.status, self.node_id)
    }

    fn names(&self) -> Vec<String> {
        vec![self.onboarding_id.to_string()]
    }

    fn note(&self) -> Option<String> {
        Some(format!("follow it: lattice onboard watch {}", self.onboarding_id))
    }
}

impl Shown for OnboardingView {
    fn text(&self, look: Look) -> String {
        let mut text = format!("{}  {} {}  {}\n", self.onboarding_id, self.flow, self.hostname, self.status);
        text.push_str(&facts(&[
            ("node", self.node_id.to_string()),
            ("bmc", self.ipmi_ip.clone().unwrap_or_default()),
            ("profile", self.profile.clone().unwrap_or_default()),
            ("provider ref", self.provider_ref.clone().unwrap_or_default()),
            ("asked by", format!("{}, {} ago", self.requested_by, look.age(self.requested_at.as_millis()))),
            (
                "provider said",
                self.diagnostics
                    .observed
                    .as_ref()
                    .map(|seen| format!("{}, power {}, {} ago", seen.status, seen.power, look.age(seen.at.as_millis())))
                    .unwrap_or_default(),
            ),
            (
                "boot disk",
                self.diagnostics
                    .boot_disk
                    .as_ref()
                    .map(|disk| format!("{} {}", disk.name, disk.model))
                    .unwrap_or_default(),
            ),
            ("bmc login", self.diagnostics.power_credentials.clone().unwrap_or_default()),
            ("addresses", self.diagnostics.deploy_ip_addresses.join(", ")),
            ("enrolment token", self.diagnostics.enrollment_token.map(|token| token.to_string()).unwrap_or_default()),
            ("completed", self.completed_at.map(|at| at.to_string()).unwrap_or_default()),
        ]));
        text.push('\n');
        text.push_str(&job::stages(&self.stages));
        if let Some(failure) = &self.failure {
            text.push_str(&format!(
                "\nstopped: {}\n  class  {} ({})\n",
                failure.message, failure.class, failure.error_code
            ));
            for step in &failure.next_actions {
                let (command, effect) = step_texts(step);
                text.push_str(&format!("  next   {}\n", joined(&command, &effect)));
            }
        }
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.onboarding_id.to_string()]
    }
}
