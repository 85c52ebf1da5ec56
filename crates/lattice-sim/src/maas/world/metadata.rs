//! The machine side: preseed, user-data, signals and status messages. spec: MAAS contract section 6.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::progress::What;
use super::{Answer, Call, Level, MaasWorld};
use crate::maas::faults::MachineFault;
use crate::maas::oauth::{ApiKey, Caller};
use crate::maas::status::NodeStatus;
use crate::maas::wire::Response;

impl MaasWorld {
    /// cloud-config with the machine's keys; anyone who knows the system id may ask.
    pub(super) fn preseed(&mut self, call: &Call<'_>) -> Answer {
        let system_id = call.arg(0).to_owned();
        self.node(&system_id)?;
        self.render_preseed(&system_id);
        let Some(ApiKey { consumer, token, secret }) = &self.node(&system_id)?.token else {
            return Err(Response::text(404, "Not Found"));
        };
        let url = &self.url;
        let text = format!(
            "#cloud-config\ndatasource:\n  MAAS:\n    consumer_key: {consumer}\n    metadata_url: {url}/metadata/\n    \
             token_key: {token}\n    token_secret: {secret}\n"
        );
        Ok(Response::text(200, text))
    }

    /// What cloud-init runs; fetching it makes a machine Deployed.
    pub(super) fn user_data(&mut self, call: &Call<'_>) -> Answer {
        let system_id = self.machine_caller(call)?;
        let Some(system) = &self.node(&system_id)?.system else {
            return Err(Response::text(404, "Not Found"));
        };
        let body = system.user_data.clone();
        self.user_data_was_fetched(&system_id, call.now);
        let mut response = Response::empty(200);
        response.content_type = "application/octet-stream";
        response.body = body;
        Ok(response)
    }

    pub(super) fn netboot_off(&mut self, call: &Call<'_>) -> Answer {
        self.machine_caller(call)?;
        Ok(Response::text(200, "OK"))
    }

    /// Results of scripts; from a deployed machine they are a hardware sync.
    pub(super) fn signal(&mut self, call: &Call<'_>) -> Answer {
        let system_id = self.machine_caller(call)?;
        let Some(status) = call.request.form.text("status") else {
            return Err(Response::form_error("status", "This field is required."));
        };
        if !["WORKING", "TESTING", "OK", "FAILED"].contains(&status) {
            return Err(Response::text(400, format!("Unknown status: '{status}'")));
        }
        if self.node(&system_id)?.status == NodeStatus::Deployed && status == "OK" {
            self.sync_hardware(&system_id, call.now);
        }
        Ok(Response::text(200, "OK"))
    }

    /// A line of cloud-init's own report.
    pub(super) fn status_message(&mut self, call: &Call<'_>) -> Answer {
        let system_id = self.machine_caller(call)?;
        if system_id != call.arg(0) {
            return Err(Response::text(403, "Forbidden"));
        }
        let Ok(message) = serde_json::from_slice::<Value>(&call.request.raw) else {
            return Err(Response::text(400, "Status payload is not valid JSON"));
        };
        let text = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, name, result) = (text("event_type"), text("name"), text("result"));
        let description = format!("'{}' {name} {} {result}", text("origin"), text("description"));
        self.record(&system_id, Level::Debug, "Node status event", description.trim(), call.now);
        if kind == "finish" && name == "modules-final" {
            self.cloud_init_is_done(&system_id, result != "FAIL", call.now);
        }
        Ok(Response::empty(204))
    }

    /// One report of a deployed machine that has hardware sync; the next one follows by itself.
    pub(super) fn sync_hardware(&mut self, system_id: &str, now: Timestamp) {
        if self.strikes(MachineFault::HwSyncUnhealthy, system_id) {
            return;
        }
        let powered = self.nodes.get(system_id).and_then(|node| self.asset_of(node));
        if powered.is_none_or(|asset| !self.assets[asset].powered) {
            return;
        }
        let sync = self.nodes.get_mut(system_id).and_then(|node| node.system.as_mut()?.sync.as_mut());
        let Some(sync) = sync else { return };
        let interval = SignedDuration::from_secs(i64::try_from(sync.interval_s).unwrap_or(i64::MAX));
        sync.last = Some(now);
        sync.next = now.checked_add(interval).ok();
        let delay = std::time::Duration::from_secs(sync.interval_s);
        self.schedule(now, delay, system_id.to_owned(), What::Sync);
        let text = "50-maas-01-commissioning changed status from 'Running' to 'Passed'";
        self.record(system_id, Level::Debug, "Script result", text, now);
    }

    fn machine_caller(&self, call: &Call<'_>) -> Result<String, Response> {
        match &call.caller {
            Caller::Machine(system_id) => Ok(system_id.clone()),
            Caller::User(_) | Caller::Anonymous => Err(Response::text(401, "Unauthorized.")),
        }
    }
}
