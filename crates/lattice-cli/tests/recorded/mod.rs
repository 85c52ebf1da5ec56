//! A server that answers with recorded bodies, and the `lattice` binary run against it.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod bodies;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// One recorded answer.
#[derive(Clone)]
pub struct Answer {
    status: u16,
    kind: &'static str,
    body: String,
}

/// 200 with that JSON.
pub fn ok(body: Value) -> Answer {
    Answer { status: 200, kind: "application/json", body: body.to_string() }
}

/// 200 with that text.
pub fn text(kind: &'static str, body: &str) -> Answer {
    Answer { status: 200, kind, body: body.to_owned() }
}

/// A refusal.
pub fn refused(status: u16, body: Value) -> Answer {
    Answer { status, kind: "application/problem+json", body: body.to_string() }
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    /// `POST /api/v1/admin/nodes/c07u43/drain`, with its query.
    pub line: String,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body as it came.
    pub body: String,
}

impl Request {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

type Routes = Vec<(String, VecDeque<Answer>)>;

/// The server; its thread ends with the process.
pub struct Recorded {
    address: String,
    seen: Arc<Mutex<Vec<Request>>>,
    home: tempfile::TempDir,
}

/// What a run of the binary came to.
pub struct Run {
    /// Its exit status.
    pub status: i32,
    /// What it printed.
    pub stdout: String,
    /// What it told beside.
    pub stderr: String,
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "status: {}\n-- stdout --\n{}-- stderr --\n{}", self.status, self.stdout, self.stderr)
    }
}

impl Recorded {
    /// Answers `METHOD path` with the given answers in turn, the last one again and again; all else with 404.
    pub fn new(routes: &[(&str, &[Answer])]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let mut routes: Routes =
            routes.iter().map(|(line, answers)| ((*line).to_owned(), answers.iter().cloned().collect())).collect();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve(&stream.unwrap(), &mut routes, &record);
            }
        });
        Self { address, seen, home: tempfile::tempdir().unwrap() }
    }

    /// Runs `lattice` with these words after its name, against this server.
    pub fn lattice(&self, arguments: &str) -> Run {
        self.lattice_with(arguments, "", &[("LATTICE_SERVER", &self.address), ("LATTICE_TOKEN", "lat_api_test")])
    }

    /// The same with a text on stdin and an environment of its own.
    pub fn lattice_with(&self, arguments: &str, stdin: &str, environment: &[(&str, &str)]) -> Run {
        let mut child = Command::new(env!("CARGO_BIN_EXE_lattice"))
            .args(arguments.split_whitespace())
            .env_clear()
            .env("HOME", self.home.path())
            .env("XDG_RUNTIME_DIR", self.home.path())
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        self.run_of(&output)
    }

    /// The server's address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The home folder of the runs.
    pub fn home(&self) -> &std::path::Path {
        self.home.path()
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    fn run_of(&self, output: &Output) -> Run {
        let home = self.home.path().display().to_string();
        let clean = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes).replace(&self.address, "http://SERVER").replace(&home, "HOME")
        };
        Run { status: output.status.code().unwrap_or(-1), stdout: clean(&output.stdout), stderr: clean(&output.stderr) }
    }
}

fn serve(stream: &TcpStream, routes: &mut Routes, record: &Mutex<Vec<Request>>) {
    let Some(request) = read(stream) else { return };
    let path = request.line.split('?').next().unwrap_or_default().to_owned();
    record.lock().unwrap().push(request);
    let answer = match routes.iter_mut().find(|(line, _)| *line == path) {
        Some((_, answers)) if answers.len() > 1 => answers.pop_front().unwrap(),
        Some((_, answers)) => answers[0].clone(),
        None => refused(404, not_found(&path)),
    };
    let head = format!(
        "HTTP/1.1 {} X\r\ncontent-type: {}\r\ncontent-length: {}\r\ndate: Sat, 21 Nov 2026 09:15:44 GMT\r\nconnection: close\r\n\r\n",
        answer.status,
        answer.kind,
        answer.body.len()
    );
    let mut stream = stream;
    // A caller that went away is the test's business, not the server's.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(answer.body.as_bytes()));
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let line = line.trim_end().strip_suffix(" HTTP/1.1")?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let request = Request { line, headers, body: String::new() };
    let length: usize = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { body: String::from_utf8(body).ok()?, ..request })
}

fn not_found(path: &str) -> Value {
    serde_json::json!({
        "type": "urn:lattice:error:LAT0004", "title": "not found", "status": 404, "code": "LAT0004",
        "detail": format!("there is nothing at {path}"), "because": [], "next_actions": [], "correlation_id": null,
    })
}
