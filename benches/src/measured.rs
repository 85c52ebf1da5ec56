//! A process of its own for what is measured, and how it is spoken to: one line of JSON each way.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, at, wrong};

/// A child of this program that plays a role. It ends when it is dropped.
pub struct Measured {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Measured {
    /// Starts `role`; what it answers once it is ready.
    ///
    /// # Errors
    /// It does not start, or not with this configuration.
    pub fn start<T: DeserializeOwned>(role: &str, config: &impl Serialize) -> Result<(Self, T), Failure> {
        let program = std::env::current_exe().map_err(at("find this program"))?;
        let mut child = Command::new(program)
            .args(["--role", role])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(at("start the measured process"))?;
        let commands = child.stdin.take().expect("it was asked for");
        let answers = BufReader::new(child.stdout.take().expect("it was asked for"));
        let mut measured = Self { child, commands, answers };
        measured.tell(config)?;
        let ready = measured.answer()?;
        Ok((measured, ready))
    }

    /// Sends a command without waiting for its answer: [`Measured::answer`] does.
    ///
    /// # Errors
    /// The process is gone.
    pub fn tell(&mut self, command: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(command).map_err(at("write a command"))?;
        writeln!(self.commands, "{line}").map_err(at("tell the measured process"))
    }

    /// The next answer.
    ///
    /// # Errors
    /// The process is gone.
    pub fn answer<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).map_err(at("hear the measured process"))?;
        if read == 0 {
            return Err(wrong("hear the measured process", "it ended; its last words are above"));
        }
        serde_json::from_str(&line).map_err(at("understand the measured process"))
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// The process is gone.
    pub fn ask<T: DeserializeOwned>(&mut self, command: &impl Serialize) -> Result<T, Failure> {
        self.tell(command)?;
        self.answer()
    }

    /// Ends it as `kill -9` does.
    pub fn kill(&mut self) {
        // It may have ended by itself: then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads the next command of the parent; none when the parent is done.
///
/// # Errors
/// It is not understood.
pub fn hear<T: DeserializeOwned>() -> Result<Option<T>, Failure> {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).map_err(at("hear the parent"))? == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(at("understand the parent"))
}

/// Reads the configuration, the parent's first line.
///
/// # Errors
/// There is none.
pub fn configuration<T: DeserializeOwned>() -> Result<T, Failure> {
    hear()?.ok_or_else(|| wrong("hear the parent", "it sent no configuration"))
}

/// Answers the parent.
///
/// # Errors
/// It is gone.
pub fn reply(answer: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(answer).map_err(at("write an answer"))?;
    let mut out = std::io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(at("answer the parent"))
}
