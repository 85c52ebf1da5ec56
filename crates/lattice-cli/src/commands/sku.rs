//! `lattice sku`: what a machine of one kind must have.

use clap::{Args, Subcommand};
use lattice_api::Gone;
use lattice_api::client::{get, post};
use lattice_api::page::Page;
use lattice_api::sku::{CreateSku, DiskRule, NicRule, Sku};

use crate::failure::Failure;
use crate::output::{self, Look, Row, Shown};
use crate::paging::Paging;
use crate::session::{Session, request};

/// What can be done with SKUs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List SKUs
    List(Paging),
    /// Show a SKU
    #[command(alias = "get")]
    Show(Named),
    /// Create a SKU; a rule that is not given is not checked
    Create(Create),
    /// Remove a SKU that no node is of
    Remove(Named),
}

/// One SKU.
#[derive(Debug, Args)]
pub struct Named {
    /// Its name
    sku: String,
}

/// A SKU to create.
#[derive(Debug, Args)]
pub struct Create {
    /// Unique name: mi300x.192g.8gpu
    name: String,
    /// How many GPUs must be on the bus
    #[arg(long, default_value_t = 0)]
    gpus: u32,
    /// Vendor of each GPU: amd, nvidia
    #[arg(long)]
    gpu_vendor: Option<String>,
    /// What each GPU's model must contain
    #[arg(long)]
    gpu_model: Option<String>,
    /// Interfaces that must be there: count=8,min_speed_mbps=400000,firmware=28.39.1002
    #[arg(long, value_name = "RULE", value_parser = nic)]
    nic: Vec<NicRule>,
    /// Disks that must be there: count=2,min_size_bytes=1000000000000,model=INTEL
    #[arg(long, value_name = "RULE", value_parser = disk)]
    disk: Vec<DiskRule>,
}

fn fields(text: &str, known: &[&str]) -> Result<Vec<(String, String)>, String> {
    text.split(',')
        .map(|part| match part.split_once('=') {
            Some((key, value)) if known.contains(&key) => Ok((key.to_owned(), value.to_owned())),
            Some(_) | None => {
                Err(format!("`{part}` is no part of a rule: expected KEY=VALUE with {}", known.join(", ")))
            }
        })
        .collect()
}

fn number<T: std::str::FromStr>(key: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no {key}: expected a whole number"))
}

fn nic(text: &str) -> Result<NicRule, String> {
    let mut rule = NicRule { count: 1, min_speed_mbps: 0, firmware: Vec::new() };
    for (key, value) in fields(text, &["count", "min_speed_mbps", "firmware"])? {
        match key.as_str() {
            "count" => rule.count = number(&key, &value)?,
            "min_speed_mbps" => rule.min_speed_mbps = number(&key, &value)?,
            _ => rule.firmware.push(value),
        }
    }
    Ok(rule)
}

fn disk(text: &str) -> Result<DiskRule, String> {
    let mut rule = DiskRule { count: 1, min_size_bytes: 0, model: String::new() };
    for (key, value) in fields(text, &["count", "min_size_bytes", "model"])? {
        match key.as_str() {
            "count" => rule.count = number(&key, &value)?,
            "min_size_bytes" => rule.min_size_bytes = number(&key, &value)?,
            _ => rule.model = value,
        }
    }
    Ok(rule)
}

/// Runs one of them.
///
/// # Errors
/// Refused.
pub async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    match command {
        Command::List(page) => session.show::<Page<Sku>>(get(&["skus"]).query(&page.query())).await,
        Command::Show(named) => session.show::<Sku>(get(&["skus", &named.sku])).await,
        Command::Create(create) => {
            let body = CreateSku {
                name: create.name,
                gpus: create.gpus,
                gpu_vendor: create.gpu_vendor,
                gpu_model: create.gpu_model,
                nics: create.nic,
                disks: create.disk,
            };
            session.show::<Sku>(post(&["skus"]).json(&body)).await
        }
        Command::Remove(named) => {
            session.confirm(&format!("remove SKU {}", named.sku), "no new node can be of it")?;
            session.show::<Gone>(request(reqwest::Method::DELETE, &["skus", &named.sku])).await
        }
    }
}

impl Row for Sku {
    fn head(_: bool) -> Vec<&'static str> {
        vec!["SKU", "GPUS", "NICS", "DISKS"]
    }

    fn cells(&self, _: Look) -> Vec<String> {
        let mut gpus = self.gpus.to_string();
        for part in [&self.gpu_vendor, &self.gpu_model].into_iter().flatten() {
            gpus.push_str(&format!(" {part}"));
        }
        let nics = self.nics.iter().map(|nic| match (nic.min_speed_mbps, nic.firmware.is_empty()) {
            (0, true) => nic.count.to_string(),
            (0, false) => format!("{} with firmware {}", nic.count, nic.firmware.join("|")),
            (speed, true) => format!("{} of {speed} Mbit/s", nic.count),
            (speed, false) => format!("{} of {speed} Mbit/s with firmware {}", nic.count, nic.firmware.join("|")),
        });
        let disks = self.disks.iter().map(|disk| {
            let model = if disk.model.is_empty() { String::new() } else { format!(" {}", disk.model) };
            format!("{}{model} of {} GB", disk.count, disk.min_size_bytes / 1_000_000_000)
        });
        vec![self.name.clone(), gpus, nics.collect::<Vec<_>>().join(", "), disks.collect::<Vec<_>>().join(", ")]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Shown for Sku {
    fn text(&self, look: Look) -> String {
        output::rows(std::slice::from_ref(self), look)
    }

    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_from_one_word() {
        let rule = nic("count=8,min_speed_mbps=400000,firmware=28.39.1002,firmware=28.40").unwrap();
        assert_eq!((rule.count, rule.min_speed_mbps, rule.firmware.len()), (8, 400_000, 2));
        assert!(nic("speed=1").is_err());
        assert!(disk("count=two").is_err());
        assert_eq!(disk("model=INTEL").unwrap().count, 1);
    }
}
