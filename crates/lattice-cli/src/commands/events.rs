//! `lattice events`: what happened, in commit order, without gaps.

use std::time::Duration;

use clap::Args;
use lattice_api::client::{ClientError, get};
use lattice_api::event::{Event, EventPage, EventQuery};

use crate::failure::Failure;
use crate::output::{self, Format, Look, Shown, table};
use crate::session::Session;

/// Which events.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Go on as they happen, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Only events after this place
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// Only events that concern this node
    #[arg(long)]
    node: Option<String>,
    /// Only events about this job
    #[arg(long)]
    job: Option<String>,
    /// At most so many, 1 to 1000
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000), conflicts_with = "follow", value_name = "ROWS")]
    limit: Option<u32>,
}

/// Pause before a stream that broke is opened again.
const PAUSE: Duration = Duration::from_secs(1);

/// How often in a row a stream is opened again without an event in between.
const ATTEMPTS: u32 = 10;

/// Prints a page of events, or follows them.
///
/// # Errors
/// Refused, or the server was lost for longer than ten attempts.
pub async fn run(arguments: Arguments, session: &Session) -> Result<(), Failure> {
    let node = match &arguments.node {
        Some(node) => Some(session.client.node(node).await?.row.id),
        None => None,
    };
    let job = match &arguments.job {
        Some(job) => Some(job.parse().map_err(|_| Failure::refused(format!("`{job}` is no id of a job")))?),
        None => None,
    };
    let query = EventQuery { after: arguments.after, limit: arguments.limit, node, job };
    if arguments.follow {
        return follow(query, session).await;
    }
    session.show::<EventPage>(get(&["events"]).query(&query)).await
}

async fn follow(mut query: EventQuery, session: &Session) -> Result<(), Failure> {
    let mut failed = 0;
    loop {
        match once(&mut query, session, &mut failed).await {
            Ok(()) => {}
            Err(Stopped::Failure(failure)) => return Err(failure),
            Err(Stopped::Lost(lost)) if failed >= ATTEMPTS => return Err(lost.into()),
            Err(Stopped::Lost(lost)) => {
                eprintln!("{lost}; trying again");
            }
        }
        failed += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

enum Stopped {
    Lost(ClientError),
    Failure(Failure),
}

/// Follows one connection to its end; the query moves on with each event, so that the next one continues there.
async fn once(query: &mut EventQuery, session: &Session, failed: &mut u32) -> Result<(), Stopped> {
    let mut stream = session.client.follow_events(query).await.map_err(stopped)?;
    while let Some(event) = stream.next().await.map_err(stopped)? {
        *failed = 0;
        query.after = Some(event.seq.0);
        print(&event, session.format()).map_err(Stopped::Failure)?;
    }
    Ok(())
}

fn stopped(error: ClientError) -> Stopped {
    match error {
        ClientError::Lost(_) => Stopped::Lost(error),
        ClientError::Refused(_) | ClientError::Unreadable { .. } => Stopped::Failure(error.into()),
    }
}

/// One event in one line: JSON for programs, words for people.
fn print(event: &Event, format: Format) -> Result<(), Failure> {
    let line = match format {
        Format::Table | Format::Wide => cells(event, format == Format::Wide).join("  ").trim_end().to_owned(),
        Format::Json => serde_json::to_string(event).unwrap_or_default(),
        Format::Yaml => format!("---\n{}", serde_yaml_ng::to_string(event).unwrap_or_default().trim_end()),
        Format::Name => event.name.clone(),
    };
    output::text(&format!("{line}\n"))
}

fn cells(event: &Event, wide: bool) -> Vec<String> {
    let mut cells = vec![
        event.seq.0.to_string(),
        event.at.to_string(),
        event.name.clone(),
        format!("{} {}", event.resource_kind, event.resource_id),
    ];
    if wide {
        cells.push(event.correlation.clone());
    }
    cells.push(words(&event.payload));
    cells
}

/// `status=active availability=ready`: the plain fields of a payload.
fn words(payload: &serde_json::Value) -> String {
    let fields = payload.as_object().into_iter().flatten().filter_map(|(key, value)| match value {
        serde_json::Value::String(text) => Some(format!("{key}={text}")),
        serde_json::Value::Number(number) => Some(format!("{key}={number}")),
        serde_json::Value::Bool(truth) => Some(format!("{key}={truth}")),
        serde_json::Value::Null | serde_json::Value::Array(_) | serde_json::Value::Object(_) => None,
    });
    fields.collect::<Vec<_>>().join(" ")
}

impl Shown for EventPage {
    fn text(&self, look: Look) -> String {
        if self.events.is_empty() {
            return String::new();
        }
        let head: &[&str] = if look.wide {
            &["SEQ", "AT", "EVENT", "ABOUT", "CORRELATION", "WITH"]
        } else {
            &["SEQ", "AT", "EVENT", "ABOUT", "WITH"]
        };
        table(head, self.events.iter().map(|event| cells(event, look.wide)))
    }

    fn names(&self) -> Vec<String> {
        self.events.iter().map(|event| event.name.clone()).collect()
    }

    fn note(&self) -> Option<String> {
        self.more.then(|| format!("there is more: --after {}", self.last.0))
    }
}
