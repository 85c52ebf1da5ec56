//! The command tree: one variant for each noun, and the options that all of them share.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::{
    admin, allocation, audit, backup, completion, dev, docs, events, explain, fleet, hold, job, node, onboard, server,
    silence, sim, site, sku, token, version, webhook, wipe,
};
use crate::output::Format;

/// Lattice: the lifecycle of bare-metal machines, from first boot to removal.
#[derive(Debug, Parser)]
#[command(name = "lattice", version, propagate_version = false, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Arguments {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
Data goes to stdout, everything else to stderr. Exit status: 0 done, 1 refused or invalid, 2 unexpected.
Without --server the address and token are taken from LATTICE_SERVER and LATTICE_TOKEN, then from
~/.config/lattice/config.toml, then from a running `lattice dev`.";

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Address of the server: https://lattice.example:7070
    #[arg(long, global = true, env = "LATTICE_SERVER", value_name = "URL", help_heading = "Global options")]
    pub server: Option<String>,
    /// File that holds the API token; LATTICE_TOKEN stands for the token itself
    #[arg(long, global = true, env = "LATTICE_TOKEN_FILE", value_name = "FILE", help_heading = "Global options")]
    pub token_file: Option<PathBuf>,
    /// Certificates that the server's must chain to, in PEM, beside those of the system
    #[arg(long, global = true, env = "LATTICE_CA_FILE", value_name = "FILE", help_heading = "Global options")]
    pub ca_file: Option<PathBuf>,
    /// How to print: table and wide for people, json as the API answered, yaml, name for scripts
    #[arg(short, long, global = true, value_enum, default_value = "table", help_heading = "Global options")]
    pub output: Format,
    /// Short for -o wide
    #[arg(short, long, global = true, conflicts_with = "output", help_heading = "Global options")]
    pub wide: bool,
    /// Confirm without being asked
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub yes: bool,
}

/// One noun each.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Machines under control: list, look, create, and everything an operator may ask of one
    #[command(subcommand)]
    Node(node::Command),
    /// Provider endpoints with their credentials and settings
    #[command(subcommand)]
    Site(site::Command),
    /// What a machine of one kind must have
    #[command(subcommand)]
    Sku(sku::Command),
    /// Turn machines into nodes
    #[command(subcommand, visible_alias = "onboarding")]
    Onboard(onboard::Command),
    /// Durable work on nodes, stage by stage
    #[command(subcommand)]
    Job(job::Command),
    /// Users' work on nodes
    #[command(subcommand)]
    Allocation(allocation::Command),
    /// Named reasons why a usable node must not be scheduled
    #[command(subcommand)]
    Hold(hold::Command),
    /// Incidents that raise no attention for a while, and nothing else
    #[command(subcommand)]
    Silence(silence::Command),
    /// What happened, in order, as it happens
    Events(events::Arguments),
    /// Who did what, and proof that nobody changed it afterwards
    #[command(subcommand)]
    Audit(audit::Command),
    /// API tokens
    #[command(subcommand)]
    Token(token::Command),
    /// Receivers that events are posted to
    #[command(subcommand)]
    Webhook(webhook::Command),
    /// Wiped devices: their signed certificates, and proof that nobody changed one
    #[command(subcommand)]
    Wipe(wipe::Command),
    /// What only administrators do
    #[command(subcommand)]
    Admin(admin::Command),
    /// Why something is not moving, and what would unblock it
    #[command(subcommand)]
    Explain(explain::Command),
    /// The fleet at a glance, and what needs attention
    Fleet,
    /// Start everything in one process: server, page, and a simulated site whose machines onboard
    Dev(dev::Arguments),
    /// The whole system in its seeded simulation: every life can be lived again
    #[command(subcommand)]
    Sim(sim::Command),
    /// Run the control plane
    Server(server::Arguments),
    /// Download a backup of everything but the secrets, and read it back
    Backup(backup::Arguments),
    /// Put a backup where a stopped server will use it
    Restore(server::RestoreArguments),
    /// Print the completion script of a shell
    Completion(completion::Arguments),
    /// Print the descriptions of the API
    #[command(subcommand, hide = true)]
    Docs(docs::Command),
    /// Version of this program, and of the server if one is known
    Version,
}

/// Runs a command.
///
/// # Errors
/// Refused by the server or the person asked, or failed in an unexpected way.
pub async fn run(arguments: Arguments) -> Result<(), crate::failure::Failure> {
    use crate::session::Session;
    let global = arguments.global;
    match arguments.command {
        Command::Completion(arguments) => completion::run(&arguments),
        Command::Docs(command) => docs::run(&command),
        Command::Version => version::run(&global).await,
        Command::Sim(command) => sim::run(&command, &global),
        Command::Dev(arguments) => dev::run(arguments, &global).await,
        Command::Server(arguments) => match arguments.keys() {
            Some(keys) => server::keys(keys, &Session::open(&global)?).await,
            None => server::run(arguments).await,
        },
        Command::Restore(arguments) => server::restore(arguments).await,
        Command::Backup(arguments) => backup::run(arguments, &global).await,
        Command::Audit(command) if command.is_local() => audit::run_local(command, &global),
        Command::Audit(command) => audit::run(command, &Session::open(&global)?).await,
        Command::Node(command) => node::run(command, &Session::open(&global)?).await,
        Command::Site(command) => site::run(command, &Session::open(&global)?).await,
        Command::Sku(command) => sku::run(command, &Session::open(&global)?).await,
        Command::Onboard(command) => onboard::run(command, &Session::open(&global)?).await,
        Command::Job(command) => job::run(command, &Session::open(&global)?).await,
        Command::Allocation(command) => allocation::run(command, &Session::open(&global)?).await,
        Command::Hold(command) => hold::run(command, &Session::open(&global)?).await,
        Command::Silence(command) => silence::run(command, &Session::open(&global)?).await,
        Command::Events(arguments) => events::run(arguments, &Session::open(&global)?).await,
        Command::Token(command) => token::run(command, &Session::open(&global)?).await,
        Command::Webhook(command) => webhook::run(command, &Session::open(&global)?).await,
        Command::Wipe(wipe::Command::Verify(verify)) => wipe::verify(&verify, &global),
        Command::Wipe(command) => wipe::run(command, &Session::open(&global)?).await,
        Command::Admin(command) => admin::run(command, &Session::open(&global)?).await,
        Command::Explain(command) => explain::run(command, &Session::open(&global)?).await,
        Command::Fleet => fleet::run(&Session::open(&global)?).await,
    }
}

#[cfg(test)]
mod printed;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use super::*;

    fn walk(command: &clap::Command, path: &str, check: &mut impl FnMut(&clap::Command, &str)) {
        check(command, path);
        for sub in command.get_subcommands() {
            walk(sub, &format!("{path} {}", sub.get_name()), check);
        }
    }

    #[test]
    fn the_tree_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_and_every_option_has_help() {
        let mut silent = Vec::new();
        walk(&Arguments::command(), "lattice", &mut |command, path| {
            if command.get_about().is_none() {
                silent.push(path.to_owned());
            }
            let options = command.get_arguments().filter(|option| option.get_help().is_none());
            silent.extend(options.map(|option| format!("{path} {}", option.get_id())));
        });
        assert!(silent.is_empty(), "without help: {silent:#?}");
    }

    #[test]
    fn no_command_takes_a_secret_as_an_argument() {
        let mut found = Vec::new();
        walk(&Arguments::command(), "lattice", &mut |command, path| {
            let options = command.get_arguments().map(|option| option.get_id().as_str());
            let secret = |id: &&str| ["token", "password", "secret", "key"].contains(id);
            found.extend(options.filter(secret).map(|option| format!("{path} --{option}")));
        });
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn every_command_that_is_printed_anywhere_can_be_typed() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut printed = Vec::new();
        collect(crates, &mut printed);
        assert!(printed.len() > 20, "the sources print commands: {printed:?}");
        let wrong: Vec<String> = printed.iter().filter_map(|command| refusal(command)).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Commands of later parts of the specification, and those that are defined beside the server.
    const ELSEWHERE: &[&str] = &["jobs"];

    fn refusal(command: &str) -> Option<String> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let noun = words.get(1)?;
        let tree = Arguments::command();
        let verb_is_open = words.get(2) == Some(&"x") || words.get(1..4) == Some(&["onboarding", "batch", "x"]);
        if ELSEWHERE.contains(noun) || tree.find_subcommand(noun).is_none() || verb_is_open {
            return None;
        }
        let error = tree.try_get_matches_from(&words).err()?;
        let kind = error.kind();
        let whole = words.len() > 3;
        let is_help = kind == clap::error::ErrorKind::DisplayHelp
            || kind == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        // Texts name commands without their arguments too: `lattice node create`.
        let is_short = kind == clap::error::ErrorKind::MissingRequiredArgument && !whole;
        (!is_help && !is_short).then(|| format!("`{command}`: {error}"))
    }

    /// Every `lattice noun …` in a text of the production sources, placeholders filled in.
    fn collect(folder: &Path, printed: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("tests") && !path.ends_with("target") {
                    collect(&path, printed);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let production = text.split("#[cfg(test)]").next().unwrap_or_default();
                let starts = production.match_indices("lattice ").map(|(at, _)| (at, &production[at..]));
                let quoted = starts.filter(|(at, _)| production[..*at].ends_with(['`', '"']));
                printed.extend(quoted.map(|(_, rest)| filled(rest)));
            }
        }
    }

    fn filled(rest: &str) -> String {
        let end = rest.find(['`', '"', '\n']).unwrap_or(rest.len());
        let mut command = String::new();
        let mut depth = 0;
        for letter in rest[..end].chars() {
            match letter {
                '{' | '<' | '[' => {
                    depth += 1;
                    if depth == 1 {
                        command.push('x');
                    }
                }
                '}' | '>' | ']' => depth -= 1,
                _ if depth == 0 => command.push(letter),
                _ => {}
            }
        }
        // A seed is a number, and what follows it an option; silences and deadlines last for a span of time.
        let command = command.replace("--for x", "--for 1h").replace("--deadline x", "--deadline 1h");
        let command = command.replace("--boot x", "--boot pxe");
        command.replace("KEY=VALUE", "key=value").replace("--seed xx", "--seed 7")
    }
}
