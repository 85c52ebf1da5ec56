//! What a person does to the machines of a running `lattice dev`: kills an agent, takes a GPU off the bus, has wipes fail.
//!
//! Over a socket in the file system that only its owner may open: one line of JSON each way.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use crate::machine::hands::WipeFate;
use crate::machine::real_agent::{Ailment, RealAgents};

/// Longest order, in bytes.
const LONGEST: u64 = 4_096;

/// What becomes of a machine's agent.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::EnumString, strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AgentOrder {
    /// It is killed, as `kill -9` does, and stays dead.
    Kill,
    /// It is started again, with what it left on its disk.
    Start,
}

/// What is done to one machine; what is absent stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Its hostname.
    pub machine: String,
    /// Its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentOrder>,
    /// What its wipes come to from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wipe: Option<WipeFate>,
    /// GPUs that are off its bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_gpus: Option<usize>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obeyed {
    /// Whether it was done.
    pub ok: bool,
    /// What was done, or why not.
    pub said: String,
}

/// Does it; the label of a machine is its hostname.
pub fn obey(agents: &RealAgents, order: &Order) -> Obeyed {
    let name = &order.machine;
    let mut said = Vec::new();
    if let Some(fate) = order.wipe {
        agents.set_wipe(name, fate);
        said.push(format!("wipes of {name}: {fate}"));
    }
    if let Some(lost_gpus) = order.lost_gpus {
        if !agents.ail(name, Ailment { lost_gpus, ..Ailment::default() }) {
            return no_agent(name);
        }
        said.push(format!("{name} has {lost_gpus} GPUs off its bus"));
    }
    match order.agent {
        Some(AgentOrder::Kill) if agents.kill(name) => said.push(format!("the agent of {name} is dead")),
        Some(AgentOrder::Start) if agents.revive(name) => said.push(format!("the agent of {name} runs")),
        Some(AgentOrder::Kill | AgentOrder::Start) => return no_agent(name),
        None => {}
    }
    Obeyed { ok: true, said: said.join("; ") }
}

fn no_agent(name: &str) -> Obeyed {
    Obeyed { ok: false, said: format!("no agent runs on a simulated machine called {name}") }
}

/// The socket as long as it is listened at.
pub struct Control {
    path: PathBuf,
    listening: JoinHandle<()>,
}

impl Control {
    /// Listens at `path`; what was there before is replaced.
    ///
    /// # Errors
    /// It cannot be bound.
    pub fn listen(path: PathBuf, agents: Arc<RealAgents>) -> std::io::Result<Self> {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Err(error) = answer(stream, &agents).await {
                    tracing::warn!(%error, "an order to a simulated machine was lost");
                }
            }
        });
        Ok(Self { path, listening })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.listening.abort();
        // What is left is replaced by the next one.
        let _left = std::fs::remove_file(&self.path);
    }
}

async fn answer(stream: UnixStream, agents: &RealAgents) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    BufReader::new(read.take(LONGEST)).read_line(&mut line).await?;
    let obeyed = match serde_json::from_str::<Order>(&line) {
        Ok(order) => obey(agents, &order),
        Err(error) => Obeyed { ok: false, said: format!("that is no order: {error}") },
    };
    let mut text = serde_json::to_string(&obeyed)?;
    text.push('\n');
    write.write_all(text.as_bytes()).await
}

/// Gives an order to whoever listens at `path`.
///
/// # Errors
/// Nobody does, or the answer cannot be read.
pub async fn order(path: &Path, order: &Order) -> std::io::Result<Obeyed> {
    let (read, mut write) = UnixStream::connect(path).await?.into_split();
    let mut text = serde_json::to_string(order)?;
    text.push('\n');
    write.write_all(text.as_bytes()).await?;
    let mut line = String::new();
    BufReader::new(read.take(LONGEST)).read_line(&mut line).await?;
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use lattice_agent::Pace;

    use super::*;

    #[tokio::test]
    async fn an_order_goes_over_the_socket_and_a_machine_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("machines.sock");
        let control = Control::listen(path.clone(), Arc::new(RealAgents::new(Pace::default()))).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only its owner may open it");
        let kill = Order { machine: "c07u43".to_owned(), agent: Some(AgentOrder::Kill), ..Order::default() };
        let obeyed = order(&path, &kill).await.unwrap();
        assert!(!obeyed.ok && obeyed.said.contains("c07u43"), "{obeyed:?}");
        let fails = Order { machine: "c07u43".to_owned(), wipe: Some(WipeFate::Fails), ..Order::default() };
        assert_eq!(order(&path, &fails).await.unwrap().said, "wipes of c07u43: fails");
        drop(control);
        assert!(order(&path, &fails).await.is_err(), "nobody listens any more");
    }
}
