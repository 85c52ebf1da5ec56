//! Boot Script Service: what a machine boots, and whether it asked.

use http::Method;
use lattice_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::client::{OchamiClient, Service};
use super::smd::Xname;
use crate::error::ProviderError;
use crate::message;

/// A machine as bss knows it. Both names are always written: it finds parameters only under the one that they were
/// stored with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its xname.
    pub xname: Xname,
    /// Hardware address of the interface that it boots from.
    pub mac: String,
}

/// What a machine boots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootParameters {
    /// URL of the kernel.
    #[serde(default)]
    pub kernel: String,
    /// URL of the initial file system.
    #[serde(default)]
    pub initrd: String,
    /// The kernel's parameters. No secret belongs here: anybody may read a boot script.
    #[serde(default)]
    pub params: String,
}

/// What a machine boots by each of its names: bss keeps them apart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Boots {
    /// By its xname.
    pub by_name: Option<BootParameters>,
    /// By its hardware address.
    pub by_mac: Option<BootParameters>,
}

impl Boots {
    /// Whether both names have exactly these.
    pub fn are(&self, wanted: &BootParameters) -> bool {
        self.by_name.as_ref() == Some(wanted) && self.by_mac.as_ref() == Some(wanted)
    }

    /// What is set under either name.
    pub fn each(&self) -> impl Iterator<Item = &BootParameters> {
        [&self.by_name, &self.by_mac].into_iter().flatten()
    }
}

/// What a machine that asks is told now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootScript {
    /// To boot this kernel.
    Boots {
        /// URL of the kernel.
        kernel: String,
    },
    /// To wait and ask again: nothing is configured for it, or smd does not know it.
    Waits,
}

#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    name: String,
    #[serde(default)]
    endpoint: String,
    #[serde(default)]
    last_epoch: i64,
}

impl OchamiClient {
    /// Whether bss runs and reaches smd.
    ///
    /// # Errors
    /// It does not, or is not there.
    pub async fn bss_ready(&self) -> Result<(), ProviderError> {
        let call = "bss.status";
        let answer = self.send(call, Service::Bss, Method::GET, "/boot/v1/service/status/all", &[], None).await?;
        // It is JSON that calls itself text.
        let status: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        match (status["bss-status"].as_str(), status["bss-status-hsm"].as_str()) {
            (Some("running"), Some("connected")) => Ok(()),
            (_, _) => Err(ProviderError::malformed("openchami bss.status", answer.text())),
        }
    }

    /// Sets what a machine boots, in place of what it booted.
    ///
    /// # Errors
    /// bss refuses.
    pub async fn set_boot(&self, machine: &Machine, boot: &BootParameters) -> Result<(), ProviderError> {
        // PUT creates and replaces; POST refuses what is there with 400. One PUT with both names creates only the first
        // of them, so each name has its own.
        self.put_boot(("hosts", machine.xname.as_str()), boot).await?;
        self.put_boot(("macs", &machine.mac), boot).await
    }

    async fn put_boot(&self, (names, name): (&str, &str), boot: &BootParameters) -> Result<(), ProviderError> {
        let body = json!({ names: [name], "kernel": boot.kernel, "initrd": boot.initrd, "params": boot.params });
        let path = "/boot/v1/bootparameters";
        self.send("bss.parameters.put", Service::Bss, Method::PUT, path, &[], Some(&body)).await.map(drop)
    }

    /// Sets what a machine booted before, under each of its names as it was; what was not set is forgotten.
    ///
    /// # Errors
    /// bss refuses.
    pub async fn restore_boots(&self, machine: &Machine, before: &Boots) -> Result<(), ProviderError> {
        let names = [("hosts", machine.xname.as_str(), &before.by_name), ("macs", &machine.mac, &before.by_mac)];
        for (names, name, earlier) in names {
            match earlier {
                Some(boot) => self.put_boot((names, name), boot).await?,
                None => self.delete_boot((names, name)).await?,
            }
        }
        Ok(())
    }

    /// What a machine boots, by each of its names.
    ///
    /// # Errors
    /// bss cannot be read.
    pub async fn boots(&self, machine: &Machine) -> Result<Boots, ProviderError> {
        let by_name = self.parameters(("name", machine.xname.as_str())).await?;
        let by_mac = self.parameters(("mac", &machine.mac)).await?;
        Ok(Boots { by_name, by_mac })
    }

    /// What a machine boots; `None`: nothing is set, under either of its names.
    ///
    /// # Errors
    /// bss cannot be read; or its two names have different parameters.
    pub async fn boot(&self, machine: &Machine) -> Result<Option<BootParameters>, ProviderError> {
        let Boots { by_name, by_mac } = self.boots(machine).await?;
        if by_name == by_mac {
            return Ok(by_name);
        }
        let what = format!("bss has other boot parameters for {} than for {}", machine.xname.as_str(), machine.mac);
        Err(ProviderError::new("openchami bss.parameters.read", crate::error::ErrorKind::SeveralMatch { what }))
    }

    async fn parameters(&self, by: (&str, &str)) -> Result<Option<BootParameters>, ProviderError> {
        let path = "/boot/v1/bootparameters";
        let found = self.read::<Vec<BootParameters>>("bss.parameters.read", Service::Bss, path, &[by]).await;
        match found {
            Ok(mut found) => Ok(found.pop()),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Forgets what a machine boots; nothing set is success.
    ///
    /// # Errors
    /// bss refuses.
    pub async fn forget_boot(&self, machine: &Machine) -> Result<(), ProviderError> {
        self.restore_boots(machine, &Boots::default()).await
    }

    async fn delete_boot(&self, (names, name): (&str, &str)) -> Result<(), ProviderError> {
        let path = "/boot/v1/bootparameters";
        let by = if names == "hosts" { "name" } else { "mac" };
        // An unknown one is refused with 400, as is a malformed one: what is there is asked first.
        if self.parameters((by, name)).await?.is_some() {
            let body = json!({ names: [name] });
            self.send("bss.parameters.delete", Service::Bss, Method::DELETE, path, &[], Some(&body)).await?;
        }
        Ok(())
    }

    /// What the machine is told when it asks now. Asked without an architecture: with one, bss fails for machines that
    /// it does not know.
    ///
    /// # Errors
    /// bss cannot be read, or its answer is no boot script.
    pub async fn boot_script(&self, machine: &Machine) -> Result<BootScript, ProviderError> {
        let call = "bss.script.read";
        let query = [("mac", machine.mac.as_str())];
        let answer = self.send(call, Service::Bss, Method::GET, "/boot/v1/bootscript", &query, None).await?;
        let text = answer.text();
        if !text.starts_with("#!ipxe") {
            return Err(ProviderError::malformed("openchami bss.script.read", "the answer is no iPXE script"));
        }
        let kernel = text
            .lines()
            .find_map(|line| line.strip_prefix("kernel "))
            .and_then(|line| line.split_whitespace().find(|word| word.contains("://")).map(message::bounded));
        Ok(kernel.map_or(BootScript::Waits, |kernel| BootScript::Boots { kernel }))
    }

    /// When the machine asked for its script last: the proof that it starts from the network.
    ///
    /// # Errors
    /// bss cannot be read.
    pub async fn asked_at(&self, machine: &Machine) -> Result<Option<Timestamp>, ProviderError> {
        let query = [("name", machine.xname.as_str())];
        let asked: Option<Vec<Asked>> =
            self.read("bss.history.read", Service::Bss, "/boot/v1/endpoint-history", &query).await?;
        let of_machine = |one: &&Asked| one.name == machine.xname.as_str() && one.endpoint == "bootscript";
        let asked = asked.unwrap_or_default();
        let last = asked.iter().filter(of_machine).map(|one| one.last_epoch).max();
        Ok(last.filter(|seconds| *seconds > 0).map(|seconds| Timestamp::from_millis(seconds.saturating_mul(1_000))))
    }
}
