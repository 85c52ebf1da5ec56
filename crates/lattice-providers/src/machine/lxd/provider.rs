//! Instances of LXD behind the traits of all providers.

use std::time::Duration;

use async_trait::async_trait;
use http::{Method, StatusCode};
use serde_json::json;

use super::client::{LxdClient, Request, checked_name, metadata};
use super::wire::{Instance, InstanceState, Operation, stamp_name};
use crate::error::{ErrorKind, ProviderError};
use crate::observer::{MachineObservation, MachineObserver, MachineState};
use crate::provider::{CommandOutput, Creation, GuestAccess, GuestFile, MachineProvider, NewInstance, Stop};

/// Longest creation: unpacking an image of some GB.
const CREATION: Duration = Duration::from_secs(600);
/// Longest change of state, beyond the time that the instance itself is given.
const CHANGE: Duration = Duration::from_secs(60);
/// Bytes kept of each output of a command.
const OUTPUT: usize = 64 << 10;
/// Tries of a change under an ETag: each is lost only to another writer of the same instance.
const ETAG_TRIES: u32 = 5;

#[async_trait]
impl MachineObserver for LxdClient {
    async fn observe(&self, provider_ref: &str) -> Result<Option<MachineObservation>, ProviderError> {
        let asked_at = self.now();
        let Some((mut instance, _)) = self.instance("instances.read", provider_ref).await? else {
            return Ok(None);
        };
        // An instance that is deleted between the two reads has no state, and no addresses.
        let path = format!("/1.0/instances/{}/state", checked_name(provider_ref)?);
        let state = self.read::<InstanceState>(Request::new("instances.state", Method::GET, path)).await;
        instance.state = match state {
            Ok(state) => Some(state),
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(instance.observation(asked_at)))
    }

    async fn observe_all(&self) -> Result<Vec<MachineObservation>, ProviderError> {
        let asked_at = self.now();
        let request = Request::new("instances.list", Method::GET, "/1.0/instances").query("recursion", 2);
        let instances: Vec<Instance> = self.read(request).await?;
        Ok(instances.iter().map(|instance| instance.observation(asked_at)).collect())
    }
}

#[async_trait]
impl MachineProvider for LxdClient {
    async fn create(&self, new: &NewInstance, key: &str) -> Result<Creation, ProviderError> {
        let call = "instances.create";
        if let Some(adopted) = self.adopt(&new.name, key).await? {
            return Ok(adopted);
        }
        let outcome = match self.perform(creation(new, key)?, CREATION).await {
            Ok(operation) => operation.outcome(call, &secrets(new)),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => match self.observe(&new.name).await? {
                Some(observation) => Ok(Creation::Created(observation)),
                None => Err(ProviderError::new(
                    format!("lxd {call}"),
                    ErrorKind::Ambiguous { detail: "it was created, and is not there".to_owned() },
                )),
            },
            // Another try with the same key may have won, or this one works on though its answer was lost: its record
            // appears only in the course of it.
            Err(error) => {
                self.settle(call, &new.name, CREATION).await?;
                self.adopt(&new.name, key).await?.ok_or(error)
            }
        }
    }

    async fn start(&self, provider_ref: &str, _key: &str) -> Result<(), ProviderError> {
        let change = json!({ "action": "start", "timeout": CHANGE.as_secs() });
        self.change_state("instances.start", provider_ref, &change, MachineState::Running, CHANGE).await
    }

    async fn stop(&self, provider_ref: &str, how: Stop, _key: &str) -> Result<(), ProviderError> {
        let (change, limit) = match how {
            Stop::Soft { within } => (json!({ "action": "stop", "timeout": within.as_secs().max(1) }), within + CHANGE),
            Stop::Hard => (json!({ "action": "stop", "force": true }), CHANGE),
        };
        self.change_state("instances.stop", provider_ref, &change, MachineState::Stopped, limit).await
    }

    async fn delete(&self, provider_ref: &str, key: &str) -> Result<(), ProviderError> {
        let call = "instances.delete";
        let Some((instance, _)) = self.instance(call, provider_ref).await? else {
            return Ok(());
        };
        if instance.status != "Stopped" {
            match self.stop(provider_ref, Stop::Hard, key).await {
                Err(error) if !error.is_not_found() => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        let request = Request::new(call, Method::DELETE, format!("/1.0/instances/{}", checked_name(provider_ref)?));
        let outcome = match self.perform(request, CHANGE).await {
            Ok(operation) => operation.outcome(call, &[]),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => Ok(()),
            Err(error) => match self.instance(call, provider_ref).await? {
                None => Ok(()),
                Some(_) => Err(error),
            },
        }
    }
}

#[async_trait]
impl GuestAccess for LxdClient {
    async fn push_file(&self, provider_ref: &str, file: &GuestFile) -> Result<(), ProviderError> {
        let path = format!("/1.0/instances/{}/files", checked_name(provider_ref)?);
        let request = Request::new("instances.push_file", Method::POST, path)
            .query("path", &file.path)
            .header("content-type", "application/octet-stream")
            .header("x-lxd-type", "file")
            .header("x-lxd-write", "overwrite")
            .header("x-lxd-uid", "0")
            .header("x-lxd-gid", "0")
            .header("x-lxd-mode", &format!("{:04o}", file.mode & 0o7777))
            .within(CHANGE)
            .bytes(file.content.clone());
        self.envelope(request).await.map(drop)
    }

    async fn exec(
        &self,
        provider_ref: &str,
        command: &[&str],
        limit: Duration,
    ) -> Result<CommandOutput, ProviderError> {
        let call = "instances.exec";
        let name = checked_name(provider_ref)?;
        let body = json!({
            "command": command,
            "environment": { "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root" },
            "interactive": false, "wait-for-websocket": false, "record-output": true,
        });
        let request = Request::new(call, Method::POST, format!("/1.0/instances/{name}/exec")).json(&body);
        let operation = self.perform(request, limit).await?;
        // A program that is not there fails the operation and still has a return code.
        let Some(code) = operation.metadata.get("return").and_then(serde_json::Value::as_i64) else {
            operation.outcome(call, &[])?;
            return Err(ProviderError::malformed(format!("lxd {call}"), "the command ended without a code"));
        };
        let (stdout, more_out) = self.output(&operation, "1").await?;
        let (stderr, more_err) = self.output(&operation, "2").await?;
        let code = i32::try_from(code).ok().filter(|code| *code >= 0);
        Ok(CommandOutput { code, stdout, stderr, truncated: more_out || more_err })
    }
}

impl LxdClient {
    /// Writes a name and a value of ours into an instance's configuration, unless another writer comes between.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Refused`] with 412 when others write it all the time.
    pub async fn annotate(&self, provider_ref: &str, name: &str, value: &str) -> Result<(), ProviderError> {
        let call = "instances.annotate";
        let path = format!("/1.0/instances/{}", checked_name(provider_ref)?);
        let not_found = || {
            ProviderError::new(
                format!("lxd {call}"),
                ErrorKind::NotFound { message: "there is no such instance".to_owned() },
            )
        };
        let mut tries = 0;
        loop {
            tries += 1;
            let (_, etag) = self.instance(call, provider_ref).await?.ok_or_else(not_found)?;
            let body = json!({ "config": { format!("user.{name}"): value } });
            let request = Request::new(call, Method::PATCH, path.clone()).json(&body);
            let request = match &etag {
                Some(etag) => request.header("if-match", etag),
                None => request,
            };
            match self.envelope(request).await {
                Ok((envelope, _)) if envelope.operation.is_empty() => return Ok(()),
                Ok((envelope, _)) => return self.ended(call, &envelope, CHANGE).await?.outcome(call, &[]),
                Err(error) if changed_between(&error) && tries < ETAG_TRIES => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn instance(
        &self,
        call: &'static str,
        name: &str,
    ) -> Result<Option<(Instance, Option<String>)>, ProviderError> {
        let request = Request::new(call, Method::GET, format!("/1.0/instances/{}", checked_name(name)?));
        match self.envelope(request).await {
            Ok((envelope, etag)) => Ok(Some((metadata(call, envelope)?, etag))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn adopt(&self, name: &str, key: &str) -> Result<Option<Creation>, ProviderError> {
        let call = "instances.create";
        let Some((instance, _)) = self.instance(call, name).await? else {
            return Ok(None);
        };
        if instance.stamp() != Some(key) {
            let what = format!("instance {name} is there and was not made by this job");
            return Err(ProviderError::new(format!("lxd {call}"), ErrorKind::SeveralMatch { what }));
        }
        // Its creation may still run, and may fail and take it away again.
        self.settle(call, name, CREATION).await?;
        Ok(self.observe(name).await?.map(Creation::Adopted))
    }

    async fn change_state(
        &self,
        call: &'static str,
        name: &str,
        change: &serde_json::Value,
        wanted: MachineState,
        limit: Duration,
    ) -> Result<(), ProviderError> {
        let path = format!("/1.0/instances/{}/state", checked_name(name)?);
        let outcome = match self.perform(Request::new(call, Method::PUT, path).json(change), limit).await {
            Ok(operation) => operation.outcome(call, &[]),
            Err(error) => Err(error),
        };
        let Err(error) = outcome else { return Ok(()) };
        // "Already running" is a failure to LXD. The state says whether it is one to us.
        match self.observe(name).await? {
            Some(seen) if seen.state == wanted => Ok(()),
            Some(_) | None => Err(error),
        }
    }

    async fn output(&self, operation: &Operation, stream: &str) -> Result<(Vec<u8>, bool), ProviderError> {
        let call = "instances.output";
        let path = operation.metadata.get("output").and_then(|output| output.get(stream)?.as_str());
        let Some(path) = path.filter(|path| path.starts_with("/1.0/instances/")) else {
            return Ok((Vec::new(), false));
        };
        let answer = self.send(&Request::new(call, Method::GET, path).beginning(OUTPUT)).await?;
        if answer.status != StatusCode::OK {
            return Err(ProviderError::malformed(format!("lxd {call}"), "the output of the command is not there"));
        }
        // It would stay on the server; the command has run in either case.
        let _ = self.send(&Request::new(call, Method::DELETE, path)).await;
        Ok((answer.body.to_vec(), answer.truncated))
    }
}

fn creation(new: &NewInstance, key: &str) -> Result<Request, ProviderError> {
    let mut config = serde_json::Map::new();
    config.extend(new.config.iter().map(|(name, value)| (name.clone(), json!(value))));
    config.insert(stamp_name(), json!(key));
    if let Some(user_data) = &new.user_data {
        config.insert("user.user-data".to_owned(), json!(user_data.expose()));
    }
    let mut devices = serde_json::Map::new();
    if let Some(port) = new.loopback_port {
        let address = format!("tcp:127.0.0.1:{port}");
        let proxy = json!({ "type": "proxy", "listen": address, "connect": address, "bind": "instance" });
        devices.insert("lattice-api".to_owned(), proxy);
    }
    // `"start": true` is ignored by 5.0.2: it is started by a change of state.
    let body = json!({
        "name": checked_name(&new.name)?, "type": "container", "profiles": new.profiles, "config": config,
        "devices": devices, "source": { "type": "image", "alias": new.image },
    });
    Ok(Request::new("instances.create", Method::POST, "/1.0/instances").json(&body).hiding(new.user_data.as_ref()))
}

fn secrets(new: &NewInstance) -> Vec<&str> {
    new.user_data.iter().map(|secret| secret.expose().as_str()).collect()
}

const fn changed_between(error: &ProviderError) -> bool {
    matches!(error.kind, ErrorKind::Refused { status: 412, .. })
}
