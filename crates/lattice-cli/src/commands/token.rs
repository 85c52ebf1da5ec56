//! `lattice token`: API tokens. The secret is printed once, at creation.

use std::time::Duration;

use clap::{Args, Subcommand};
use lattice_api::client::{get, post};
use lattice_api::page::Page;
use lattice_api::token::{CreateToken, CreatedToken, TokenView, WhoAmI};

use crate::failure::Failure;
use crate::output::{self, Look, Row, Shown, facts};
use crate::paging::Paging;
use crate::session::{Session, request};
use crate::span;
use crate::vocabulary::word;

/// What can be done with tokens.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a token and print its secret, this once
    Create(Create),
    /// List tokens, without their secrets
    List(Paging),
    /// Withdraw a token, at once
    Revoke(Revoke),
    /// Show who the token in use is
    Whoami,
}

/// A token to create.
#[derive(Debug, Args)]
pub struct Create {
    /// Who it is: the name in the audit
    name: String,
    /// What it may do: platform_admin, tenant_admin, project_admin, project_member or project_viewer
    #[arg(long)]
    role: String,
    /// How long it is valid: 2h, 90d
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    ttl: Option<Duration>,
}

/// A token to withdraw.
#[derive(Debug, Args)]
pub struct Revoke {
    /// Its id
    id: String,
}

/// Runs one of them.
///
/// # Errors
/// Refused.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::Create(create) => {
            let ttl_seconds = create.ttl.map(|ttl| ttl.as_secs());
            let body = CreateToken { name: create.name, role: word("role", &create.role)?, ttl_seconds };
            session.show::<CreatedToken>(post(&["tokens"]).json(&body)).await
        }
        Command::List(page) => session.show::<Page<TokenView>>(get(&["tokens"]).query(&page.query())).await,
        Command::Revoke(revoke) => {
            session.show::<TokenView>(request(reqwest::Method::DELETE, &["tokens", &revoke.id])).await
        }
        Command::Whoami => session.show::<WhoAmI>(get(&["whoami"])).await,
    }
}

impl Shown for CreatedToken {
    fn text(&self, _: Look) -> String {
        format!("{}\n", self.secret.expose())
    }

    fn names(&self) -> Vec<String> {
        vec![self.token.id.to_string()]
    }

    fn note(&self) -> Option<String> {
        let end = self.token.expires_at.map(|at| format!(", until {at}")).unwrap_or_default();
        Some(format!("{} is {}{end}; the secret is shown this once", self.token.name, self.token.role))
    }
}

impl Row for TokenView {
    fn head(_: bool) -> Vec<&'static str> {
        vec!["ID", "NAME", "ROLE", "AGE", "EXPIRES", "VALID"]
    }

    fn cells(&self, look: Look) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.role.to_string(),
            look.age(self.issued_at.as_millis()),
            self.expires_at.map_or_else(|| "never".to_owned(), |at| at.to_string()),
            match (self.valid, self.revoked_at) {
                (true, _) => "yes".to_owned(),
                (false, Some(_)) => "revoked".to_owned(),
                (false, None) => "expired".to_owned(),
            },
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Shown for TokenView {
    fn text(&self, look: Look) -> String {
        output::rows(std::slice::from_ref(self), look)
    }

    fn names(&self) -> Vec<String> {
        vec![self.id.to_string()]
    }
}

impl Shown for WhoAmI {
    fn text(&self, _: Look) -> String {
        facts(&[
            ("name", self.name.clone()),
            ("role", self.role.to_string()),
            ("token", self.token_id.map(|id| id.to_string()).unwrap_or_default()),
            ("expires", self.expires_at.map(|at| at.to_string()).unwrap_or_default()),
        ])
    }

    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }
}
