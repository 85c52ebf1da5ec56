//! `lattice node bmc`: where a node's BMC is, what it says, who waits for it.
//!
//! Logins come from a file or from stdin, as those of sites do: never from the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lattice_api::bmc::{BmcCheck, BmcDrive, BmcProtocol, BmcReport, BmcTls, BmcView, BreakerState, SetBmc};
use lattice_api::client::{get, post};
use lattice_api::node::Reason;
use lattice_api::site::PowerLogin;

use super::actions::Plain;
use crate::commands::site::login_from;
use crate::failure::Failure;
use crate::output::{Look, Shown, facts};
use crate::session::{Session, request};

/// What can be done with a node's BMC.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Give a node a BMC, in place of the one that it has
    Set(Box<Set>),
    /// Show a node's BMC: who uses it, whether its credential is tried, what it said last
    Show(Named),
    /// Look at it now: what it is, the machine's power and hardware
    Check(Named),
    /// Have its credential tried again after it was refused too often
    ResetBreaker(Plain),
}

/// One node.
#[derive(Debug, Args)]
pub struct Named {
    /// Hostname or id
    node: String,
}

/// A BMC.
#[derive(Debug, Args)]
pub struct Set {
    /// Hostname or id
    node: String,
    /// Its IP address, within the networks that the site allows
    #[arg(long, value_name = "ADDRESS")]
    address: String,
    /// redfish or ipmi
    #[arg(long)]
    protocol: String,
    /// Its port, when it is not 443 or 623
    #[arg(long)]
    port: Option<u16>,
    /// IPMI: cipher suite, 17 or 3
    #[arg(long)]
    cipher: Option<u8>,
    /// Redfish: id of the system, where one service has several
    #[arg(long, value_name = "ID")]
    system: Option<String>,
    /// What proves it
    #[command(flatten)]
    trust: Trust,
    /// Its login
    #[command(flatten)]
    source: Source,
    /// Why; kept in history and audit
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
}

/// What proves a Redfish service; the site's authority when nothing is given.
#[derive(Debug, Args)]
#[group(id = "trust", required = false, multiple = false)]
pub struct Trust {
    /// Redfish: SHA-256 of its certificate, which alone is accepted
    #[arg(long, value_name = "HEX")]
    certificate_sha256: Option<String>,
    /// Redfish: no TLS, on loopback only
    #[arg(long)]
    plain: bool,
}

/// Where the login is read from: JSON or TOML with user and pass. Without it, the one that is kept stays.
#[derive(Debug, Args)]
#[group(id = "source", required = false, multiple = false)]
pub struct Source {
    /// File that holds the login; keep it readable for yourself only
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,
    /// Read the login from stdin
    #[arg(long)]
    from_stdin: bool,
}

/// Runs one of them.
///
/// # Errors
/// Refused; or the BMC could not be read.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Set(set) => {
            let node = set.node.clone();
            let body = body(*set)?;
            session.show::<BmcView>(request(reqwest::Method::PATCH, &["nodes", &node, "bmc"]).json(&body)).await
        }
        Command::Show(named) => session.show::<BmcView>(get(&["nodes", &named.node, "bmc"])).await,
        Command::Check(named) => {
            let answer = session.ask::<BmcCheck>(post(&["nodes", &named.node, "bmc", "check"])).await?;
            session.print(&answer)?;
            match &answer.value.failure {
                None => Ok(()),
                Some(why) => {
                    Err(Failure::refused(format!("the BMC of {} could not be read", named.node)).because(why.clone()))
                }
            }
        }
        Command::ResetBreaker(plain) => {
            let reason = Reason { reason: plain.reason };
            session.show::<BmcView>(post(&["nodes", &plain.node, "bmc", "reset-breaker"]).json(&reason)).await
        }
    }
}

fn body(set: Set) -> Result<SetBmc, Failure> {
    let protocol: BmcProtocol = crate::vocabulary::word("protocol", &set.protocol)?;
    let tls = match (set.trust.certificate_sha256, set.trust.plain) {
        (Some(sha256), _) => Some(BmcTls::Pinned { sha256: sha256.replace(':', "").to_ascii_lowercase() }),
        (None, true) => Some(BmcTls::Plain),
        (None, false) => None,
    };
    let login: Option<PowerLogin> = match (&set.source.from_file, set.source.from_stdin) {
        (None, false) => None,
        (file, _) => Some(login_from(file.as_deref())?),
    };
    Ok(SetBmc {
        address: set.address,
        port: set.port,
        protocol,
        cipher: set.cipher,
        tls,
        system: set.system,
        login,
        reason: set.reason,
    })
}

impl Shown for BmcView {
    fn text(&self, look: Look) -> String {
        let breaker = match &self.breaker {
            BreakerState::Closed => String::new(),
            BreakerState::HalfOpen { .. } => "another one is tried by the next call".to_owned(),
            BreakerState::Open { since, by } => {
                format!("not tried for {}: refused {} times, last by {by}", look.age(since.as_millis()), self.refusals)
            }
        };
        let cipher = self.cipher.map(|cipher| format!("cipher suite {cipher}"));
        let trust = self.tls.as_ref().map(|tls| match tls {
            BmcTls::Pinned { sha256 } => format!("certificate {sha256}"),
            BmcTls::SiteAuthority => "the site's authority".to_owned(),
            BmcTls::Plain => "no TLS".to_owned(),
        });
        let uses = self.running.iter().map(|one| ("answers", one)).chain(self.waiting.iter().map(|one| ("waits", one)));
        let mut lines = vec![
            ("bmc", format!("{} at {} port {}", self.protocol, self.address, self.port)),
            ("by", cipher.or(trust).unwrap_or_default()),
            ("system", self.system.clone().unwrap_or_default()),
            ("login", format!("kept at {}", self.credential_path)),
            ("credential", breaker),
            ("set", format!("{} ago by {}", look.age(self.set_at.as_millis()), self.set_by)),
        ];
        for (how, one) in uses {
            lines.push((how, format!("{} ({}), for {}", one.who, one.why, look.age(one.since.as_millis()))));
        }
        let mut text = format!("{}\n{}", self.hostname, facts(&lines));
        match &self.report {
            Some(report) => text.push_str(&said(report, look)),
            None => text.push_str("not looked at yet\n"),
        }
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.hostname.clone()]
    }
}

impl Shown for BmcCheck {
    fn text(&self, look: Look) -> String {
        let head = facts(&[
            ("vendor", self.vendor.clone()),
            ("model", self.model.clone()),
            ("firmware", self.firmware.clone()),
            ("not offered", self.not_offered.join(", ")),
        ]);
        let drives: Vec<_> = self.drives.iter().map(|one| ("drive", drive(one))).collect();
        format!("{head}{}{}", facts(&drives), said(&self.report, look))
    }

    fn names(&self) -> Vec<String> {
        vec![self.report.node.to_string()]
    }
}

fn drive(one: &BmcDrive) -> String {
    let how = if one.erasable { "" } else { ", which it cannot erase" };
    format!("{}: {}{how}", one.drive, one.name)
}

fn said(report: &BmcReport, look: Look) -> String {
    let mut lines = Vec::new();
    if let Some(power) = &report.power {
        lines.push(("power", format!("{power}, {} ago", look.age(power.at.as_millis()))));
    }
    if let Some(health) = &report.health {
        let age = look.age(health.at.as_millis());
        if health.evidence.is_empty() {
            lines.push(("hardware", format!("nothing is wrong, {age} ago")));
        }
        for evidence in &health.evidence {
            lines.push(("hardware", format!("{} {evidence}, {age} ago", evidence.severity)));
        }
        lines.push(("not read", health.not_read.join(", ")));
    }
    lines.push(("failed", report.failure.clone().unwrap_or_default()));
    facts(&lines)
}
