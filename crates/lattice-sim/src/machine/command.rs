//! The few commands that a simulated machine understands. There is no shell.

/// A command in one of the fixed forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// `install [-D] [-m MODE] [-o USER] [-g GROUP] /dev/stdin PATH`: writes what comes over standard input.
    Install {
        /// Where it goes.
        path: String,
        /// Octal mode.
        mode: u32,
    },
    /// `systemctl VERB [--now] UNIT…`.
    Systemctl {
        /// `start`, `restart`, `enable`, …
        verb: String,
        /// Units, with or without suffix.
        units: Vec<String>,
        /// Whether the verb starts them now.
        starts: bool,
    },
    /// `cat PATH`.
    Read {
        /// The file.
        path: String,
    },
    /// `test -f PATH` and `test -e PATH`.
    Exists {
        /// The file.
        path: String,
    },
    /// `cloud-init status [--wait]`.
    CloudInitStatus,
    /// `true`.
    Nothing,
}

/// Verbs of systemctl that are known.
const VERBS: [&str; 8] = ["start", "restart", "stop", "enable", "disable", "daemon-reload", "is-active", "reload"];

/// Reads a command line; a leading `sudo [-n]` is passed over. `None` for anything else.
pub fn parse(line: &str) -> Option<Command> {
    let words = split(line)?;
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    if words.first() == Some(&"sudo") {
        let flags = words[1..].iter().take_while(|word| word.starts_with('-')).count();
        words.drain(..=flags);
    }
    // A layer's command is run as it is; what its runner notes is a matter of faults.
    if words.first().is_some_and(|word| word.ends_with("/lattice-layer")) {
        words.drain(..words.len().min(2));
    }
    let (program, arguments) = words.split_first()?;
    match (program.rsplit('/').next().unwrap_or(program), arguments) {
        ("install", arguments) => parse_install(arguments),
        ("systemctl", arguments) => parse_systemctl(arguments),
        ("cat", [path]) => Some(Command::Read { path: (*path).to_owned() }),
        ("test", ["-f" | "-e", path]) => Some(Command::Exists { path: (*path).to_owned() }),
        ("cloud-init", ["status"] | ["status", "--wait"]) => Some(Command::CloudInitStatus),
        ("true", []) => Some(Command::Nothing),
        (_, _) => None,
    }
}

fn parse_install(arguments: &[&str]) -> Option<Command> {
    let (mut mode, mut plain) = (0o755, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "-D" | "--" => {}
            "-m" => mode = u32::from_str_radix(rest.next()?, 8).ok()?,
            "-o" | "-g" => {
                rest.next()?;
            }
            flag if flag.starts_with("-m") => mode = u32::from_str_radix(&flag[2..], 8).ok()?,
            flag if flag.starts_with('-') => return None,
            word => plain.push(word),
        }
    }
    match plain.as_slice() {
        ["/dev/stdin", path] if path.starts_with('/') => Some(Command::Install { path: (*path).to_owned(), mode }),
        _ => None,
    }
}

fn parse_systemctl(arguments: &[&str]) -> Option<Command> {
    let (flags, plain): (Vec<&str>, Vec<&str>) = arguments.iter().partition(|argument| argument.starts_with('-'));
    let (verb, units) = plain.split_first()?;
    if !VERBS.contains(verb) {
        return None;
    }
    let starts = matches!(*verb, "start" | "restart") || flags.contains(&"--now");
    let units = units.iter().map(|unit| (*unit).to_owned()).collect();
    Some(Command::Systemctl { verb: (*verb).to_owned(), units, starts })
}

/// Words as a shell would split them, with quotes; `None` where only a shell would do.
fn split(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote, mut open) = (Vec::new(), String::new(), None, false);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(end), letter) if letter == end => quote = None,
            (Some(_), letter) => word.push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                open = true;
            }
            (None, '\\') => word.push(letters.next()?),
            (None, ';' | '&' | '|' | '<' | '>' | '$' | '`' | '\n' | '*' | '(' | ')') => return None,
            (None, letter) if letter.is_whitespace() => {
                if open || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                    open = false;
                }
            }
            (None, letter) => word.push(letter),
        }
    }
    if quote.is_some() {
        return None;
    }
    if open || !word.is_empty() {
        words.push(word);
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<Command>) {
        assert_eq!(parse(line), expected, "{line}");
    }

    #[test]
    fn the_fixed_forms_are_understood_with_or_without_sudo() {
        let creds = "/etc/maas/maas-machine-creds.yml".to_owned();
        let install = Some(Command::Install { path: creds.clone(), mode: 0o600 });
        check("install -m 600 /dev/stdin /etc/maas/maas-machine-creds.yml", install.clone());
        check("sudo -n install -D -o root -g root -m 0600 /dev/stdin '/etc/maas/maas-machine-creds.yml'", install);
        let units = vec!["maas_hardware_sync.timer".to_owned()];
        let restart = |verb: &str| Command::Systemctl { verb: verb.into(), units: units.clone(), starts: true };
        check("sudo systemctl restart maas_hardware_sync.timer", Some(restart("restart")));
        check("/usr/bin/systemctl enable --now maas_hardware_sync.timer", Some(restart("enable")));
        check("'cat' '/etc/maas/maas-machine'\\-creds.yml", Some(Command::Read { path: creds }));
    }

    #[test]
    fn what_only_a_shell_would_do_is_refused() {
        for line in
            ["cat /etc/shadow > /tmp/x", "systemctl restart a; rm -rf /", "echo $HOME", "bash -c 'true'", "", "'"]
        {
            check(line, None);
        }
        check("install -m 600 /etc/shadow /tmp/x", None);
    }
}
