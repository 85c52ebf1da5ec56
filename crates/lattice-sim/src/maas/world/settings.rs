//! Version, users, keys, configuration, controllers and images: the region itself.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::network::nothing;
use super::{Answer, Call, MaasWorld};
use crate::maas::config::{ADMIN, generate_key};
use crate::maas::oauth::{ApiKey, Caller};
use crate::maas::wire::Response;

/// The configuration of a region by name.
pub(super) struct Settings(BTreeMap<&'static str, Value>);

/// The version that the contract describes.
const VERSION: &str = "3.7.3";

impl Settings {
    pub(super) fn initial() -> Self {
        Self(BTreeMap::from([
            ("commissioning_distro_series", json!("noble")),
            ("default_distro_series", json!("noble")),
            ("default_dns_ttl", json!(30)),
            ("default_min_hwe_kernel", json!("")),
            ("default_osystem", json!("ubuntu")),
            ("default_storage_layout", json!("flat")),
            ("disk_erase_with_quick_erase", json!(false)),
            ("disk_erase_with_secure_erase", json!(true)),
            ("enable_disk_erasing_on_release", json!(false)),
            ("enable_http_proxy", json!(true)),
            ("hardware_sync_interval", json!("15m")),
            ("maas_name", json!("lattice-sim")),
            ("node_timeout", json!(30)),
            ("ntp_servers", json!("ntp.ubuntu.com")),
            ("upstream_dns", json!(null)),
        ]))
    }

    /// `hardware_sync_interval` in seconds.
    pub(super) fn sync_interval_s(&self) -> u64 {
        let text = self.0.get("hardware_sync_interval").and_then(Value::as_str).unwrap_or("15m");
        span_s(text).unwrap_or(900)
    }
}

/// A systemd time span with h, m and s, in seconds.
fn span_s(text: &str) -> Option<u64> {
    let (mut total, mut number) = (0_u64, String::new());
    for letter in text.chars().filter(|c| !c.is_whitespace()) {
        let unit = match letter {
            '0'..='9' => {
                number.push(letter);
                continue;
            }
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        total += std::mem::take(&mut number).parse::<u64>().ok()? * unit;
    }
    (total > 0 && number.is_empty()).then_some(total)
}

impl MaasWorld {
    pub(super) fn version(&self) -> Response {
        let capabilities = [
            "networks-management",
            "static-ipaddresses",
            "ipv6-deployment-ubuntu",
            "devices-management",
            "storage-deployment-ubuntu",
            "network-deployment-ubuntu",
            "bridging-interface-ubuntu",
            "bridging-automatic-ubuntu",
            "authenticate-api",
        ];
        let body = json!({ "version": VERSION, "subversion": "simulated", "capabilities": capabilities });
        Response::json(200, &body)
    }

    pub(super) fn whoami(&self, call: &Call<'_>) -> Response {
        let name = call.user();
        let body = json!({
            "username": name, "email": format!("{name}@example.com"), "is_superuser": name == ADMIN,
            "is_local": true, "resource_uri": format!("/MAAS/api/2.0/users/{name}/"),
        });
        Response::json(200, &body)
    }

    pub(super) fn create_token(&mut self, call: &Call<'_>) -> Response {
        self.last_key += 1;
        let key = generate_key(self.dice, 0x7573_6572 ^ (self.last_key << 32));
        let body = token_body(&key, call.request.form.text("name").unwrap_or("MAAS consumer"));
        self.keys.add(key, call.caller.clone());
        Response::json(200, &body)
    }

    pub(super) fn delete_token(&mut self, call: &Call<'_>) -> Answer {
        let token = call.request.form.text("token_key").unwrap_or_default();
        let own = self.keys.of(&call.caller).any(|key| key.token == token);
        if own && self.keys.remove(token) { Ok(Response::empty(204)) } else { Err(nothing("Token")) }
    }

    pub(super) fn list_tokens(&self, call: &Call<'_>) -> Response {
        let caller: &Caller = &call.caller;
        let tokens = self.keys.of(caller).map(|key| json!({ "name": "MAAS consumer", "token": key.joined() }));
        Response::json(200, &tokens.collect())
    }

    pub(super) fn get_config(&self, call: &Call<'_>) -> Answer {
        let name = call.request.query.text("name").unwrap_or_default();
        let value = self.settings.0.get(name).ok_or_else(|| self.no_such_setting(name))?;
        Ok(Response::json(200, value))
    }

    pub(super) fn set_config(&mut self, call: &Call<'_>) -> Answer {
        let form = &call.request.form;
        let name = form.text("name").unwrap_or_default();
        let value = form.get("value").unwrap_or_default();
        if name == "hardware_sync_interval" && span_s(value).is_none() {
            return Err(Response::form_error(name, format!("'{value}' is not a valid systemd time span.")));
        }
        let refusal = self.no_such_setting(name);
        let setting = self.settings.0.get_mut(name).ok_or(refusal)?;
        *setting = match setting {
            Value::Bool(_) => json!(matches!(value, "true" | "True" | "1")),
            Value::Number(_) => value.parse::<i64>().map_or_else(|_| json!(value), |number| json!(number)),
            Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => json!(value),
        };
        Ok(Response::text(200, "OK"))
    }

    fn no_such_setting(&self, name: &str) -> Response {
        let names: Vec<&str> = self.settings.0.keys().copied().collect();
        Response::text(400, format!("{name} is not a valid config setting (valid settings are: {}).", names.join(", ")))
    }

    /// One rack controller, as a probe wants to see it.
    pub(super) fn list_racks(&self) -> Response {
        let service = |name: &str| json!({ "name": name, "status": "running", "status_info": "" });
        let services: Vec<Value> = ["rackd", "http", "dhcpd", "tftp", "ntp_rack"].into_iter().map(service).collect();
        let body = json!([{
            "system_id": "rack01", "hostname": "rack-1", "fqdn": "rack-1.maas", "node_type": 2,
            "node_type_name": "Rack controller", "version": VERSION, "power_state": "unknown",
            "ip_addresses": ["127.0.0.1"], "service_set": services,
            "interface_set": [{"id": 1, "name": "ens18", "vlan": null}, {"id": 2, "name": "ens19", "vlan": null}], "zone": self.groups.zone_body("default"),
            "resource_uri": "/MAAS/api/2.0/rackcontrollers/rack01/",
        }]);
        Response::json(200, &body)
    }

    pub(super) fn list_boot_resources(&self) -> Response {
        let image = |id: u32, name: &str| {
            json!({
                "id": id, "type": "Synced", "name": name, "architecture": "amd64/ga-24.04",
                "resource_uri": format!("/MAAS/api/2.0/boot-resources/{id}/"), "subarches": "generic",
            })
        };
        Response::json(200, &json!([image(1, "ubuntu/noble"), image(2, "ubuntu/jammy")]))
    }
}

fn token_body(key: &ApiKey, name: &str) -> Value {
    json!({
        "consumer_key": key.consumer, "token_key": key.token, "token_secret": key.secret, "name": name,
    })
}

#[cfg(test)]
mod tests {
    use super::span_s;

    #[test]
    fn a_systemd_span_is_read_in_seconds() {
        assert_eq!(span_s("15m"), Some(900));
        assert_eq!(span_s("1h 30m"), Some(5400));
        assert_eq!(span_s("5s"), Some(5));
        for bad in ["", "15", "m", "15d", "0s"] {
            assert_eq!(span_s(bad), None, "{bad}");
        }
    }
}
