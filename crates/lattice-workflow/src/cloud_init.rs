//! The first-boot payload of a machine that MAAS deploys, in the order of its layers. spec: S5 4.3, 9

use std::net::Ipv4Addr;

use lattice_core::ids::NodeId;
use lattice_core::secret::{Secret, Wipe};
use lattice_core::site::RoceAssignment;
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};
use serde::Serialize;

use crate::bootstrap::{AGENT_PATH, BOOTSTRAP_PATH, CA_PATH};
use crate::first_boot::{Layer, RUNNER};

/// First routing table of the RoCE interfaces; each interface has its own. Below the kernel's reserved 253 to 255.
const FIRST_ROCE_TABLE: u32 = 100;

/// Everything the payload is rendered from.
pub struct Payload<'a> {
    /// Which node it becomes.
    pub node: NodeId,
    /// Its host name.
    pub hostname: &'a str,
    /// Content of `/etc/lattice/bootstrap.json`.
    pub bootstrap_json: &'a Secret<String>,
    /// Where the agent's binary is fetched from.
    pub agent_url: &'a str,
    /// Whether that address has a certificate of our CA.
    pub agent_is_ours: bool,
    /// SHA-256 of the binary, in hex.
    pub agent_sha256: Option<&'a str>,
    /// What the address above is trusted by, in PEM.
    pub ca_pem: &'a str,
    /// Keys that tasks are signed with, in PEM.
    pub task_keys_pem: &'a str,
    /// Infra-owned bundle that runs before everything of ours.
    pub site_bundle: Option<&'a str>,
    /// User that the deployment creates.
    pub deploy_user: &'a str,
    /// Its password.
    pub deploy_password: &'a Secret<String>,
    /// Private part of the host key, in OpenSSH's format.
    pub ssh_private_key: &'a Secret<String>,
    /// Public part: what is pinned.
    pub ssh_public_key: &'a str,
    /// MAAS machine credentials as the file's text, where MAAS already made them.
    pub sync_credentials: Option<&'a Secret<String>>,
    /// Name servers.
    pub dns: &'a [String],
    /// RoCE addresses of the host.
    pub roce: &'a [RoceAssignment],
}

/// Why a payload could not be rendered.
#[derive(Debug, thiserror::Error)]
#[error("the first-boot payload cannot be rendered")]
pub struct RenderError(#[from] minijinja::Error);

#[derive(Serialize)]
struct File {
    path: &'static str,
    mode: &'static str,
    content: String,
}

impl Drop for File {
    fn drop(&mut self) {
        self.content.wipe();
    }
}

#[derive(Serialize)]
struct RoceLink {
    table: u32,
    interface: String,
    address: Ipv4Addr,
    gateway: Ipv4Addr,
}

/// Renders the payload. It holds secrets: the enrolment token, the deploy password, the host key.
///
/// # Errors
/// A template is wrong, which a test would have shown.
pub fn render(payload: &Payload<'_>) -> Result<Secret<String>, RenderError> {
    let templates = templates()?;
    let roce: Vec<RoceLink> = links(payload.roce);
    let mut files = agent_files(payload, &templates)?;
    files.extend(sync_files(payload, &templates)?);
    files.extend(disk_files(&templates)?);
    files.extend(roce_files(&roce, &templates)?);
    let context = context! {
        hostname => payload.hostname,
        node_id => payload.node.to_string(),
        site_bundle => payload.site_bundle,
        ssh_private_key => payload.ssh_private_key.expose(),
        ssh_public_key => payload.ssh_public_key,
        deploy_user => payload.deploy_user,
        deploy_password => payload.deploy_password.expose(),
        dns => Value::from(Serde(payload.dns)),
        roce => !roce.is_empty(),
        files => Value::from(Serde(&files)),
        commands => Value::from(Serde(commands(payload, &roce))),
    };
    Ok(Secret::new(templates.get_template("user_data.yaml")?.render(context)?))
}

fn templates() -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    // JSON is YAML: whatever a value holds, it stays one value.
    environment.add_filter("json", |value: Value| serde_json::to_string(&value).unwrap_or_default());
    for (name, text) in [
        ("user_data.yaml", include_str!("cloud_init/user_data.yaml.j2")),
        ("lattice_layer.sh", include_str!("cloud_init/lattice_layer.sh.j2")),
        ("agent.service", include_str!("cloud_init/agent.service.j2")),
        ("hardware_sync.path", include_str!("cloud_init/hardware_sync.path.j2")),
        ("init_disks.sh", include_str!("cloud_init/init_disks.sh.j2")),
        ("init_disks.service", include_str!("cloud_init/init_disks.service.j2")),
        ("roce_routes.sh", include_str!("cloud_init/roce_routes.sh.j2")),
        ("roce_routes.service", include_str!("cloud_init/roce_routes.service.j2")),
    ] {
        environment.add_template(name, text)?;
    }
    Ok(environment)
}

fn plain(templates: &Environment<'_>, name: &str) -> Result<String, minijinja::Error> {
    templates.get_template(name)?.render(context! {})
}

fn agent_files(payload: &Payload<'_>, templates: &Environment<'_>) -> Result<Vec<File>, minijinja::Error> {
    Ok(vec![
        File { path: RUNNER, mode: "0755", content: plain(templates, "lattice_layer.sh")? },
        File { path: BOOTSTRAP_PATH, mode: "0600", content: payload.bootstrap_json.expose().clone() },
        File { path: CA_PATH, mode: "0644", content: payload.ca_pem.to_owned() },
        File { path: "/etc/lattice/task-keys.pem", mode: "0644", content: payload.task_keys_pem.to_owned() },
        File {
            path: "/etc/systemd/system/lattice-agent.service",
            mode: "0644",
            content: plain(templates, "agent.service")?,
        },
    ])
}

fn sync_files(payload: &Payload<'_>, templates: &Environment<'_>) -> Result<Vec<File>, minijinja::Error> {
    let wiring = File {
        path: "/etc/systemd/system/lattice-maas-sync.path",
        mode: "0644",
        content: plain(templates, "hardware_sync.path")?,
    };
    let credentials = payload.sync_credentials.map(|text| File {
        path: "/etc/maas/maas-machine-creds.yml",
        mode: "0600",
        content: text.expose().clone(),
    });
    Ok(std::iter::once(wiring).chain(credentials).collect())
}

fn disk_files(templates: &Environment<'_>) -> Result<Vec<File>, minijinja::Error> {
    Ok(vec![
        File { path: "/usr/local/sbin/lattice-init-disks", mode: "0755", content: plain(templates, "init_disks.sh")? },
        File {
            path: "/etc/systemd/system/lattice-init-disks.service",
            mode: "0644",
            content: plain(templates, "init_disks.service")?,
        },
    ])
}

fn roce_files(roce: &[RoceLink], templates: &Environment<'_>) -> Result<Vec<File>, minijinja::Error> {
    if roce.is_empty() {
        return Ok(Vec::new());
    }
    let script = templates.get_template("roce_routes.sh")?.render(context! { roce => Value::from(Serde(roce)) })?;
    Ok(vec![
        File { path: "/usr/local/sbin/lattice-roce-routes", mode: "0755", content: script },
        File {
            path: "/etc/systemd/system/lattice-roce-routes.service",
            mode: "0644",
            content: plain(templates, "roce_routes.service")?,
        },
    ])
}

/// What runs at the end of the first boot, layer after layer. Each is an argument list.
fn commands(payload: &Payload<'_>, roce: &[RoceLink]) -> Vec<Vec<String>> {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut commands = Vec::new();
    if let Some(bundle) = payload.site_bundle {
        let program = vec!["/usr/local/sbin/site-bootstrap".to_owned(), bundle.to_owned()];
        commands.push(in_layer(Layer::SiteBootstrap, program));
    }
    let agent = |command| in_layer(Layer::AgentBootstrap, command);
    commands.extend(get_agent(payload).into_iter().map(agent));
    commands.push(words("systemctl daemon-reload"));
    commands.push(words("systemctl enable --now lattice-maas-sync.path"));
    commands.push(words("systemctl enable --now lattice-init-disks.service"));
    if !roce.is_empty() {
        commands.push(words("systemctl enable --now lattice-roce-routes.service"));
    }
    commands.push(agent(words("systemctl enable --now lattice-agent.service")));
    commands
}

/// A command that notes its failure as that layer's, and is not run after an earlier one failed.
fn in_layer(layer: Layer, command: Vec<String>) -> Vec<String> {
    [RUNNER.to_owned(), layer.name().to_owned()].into_iter().chain(command).collect()
}

fn get_agent(payload: &Payload<'_>) -> Vec<Vec<String>> {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let trust = if payload.agent_is_ours { format!("--cacert {CA_PATH} ") } else { String::new() };
    let mut commands = vec![words(&format!(
        "curl --fail --silent --show-error --location --retry 20 --retry-connrefused {trust}--output {AGENT_PATH} {}",
        payload.agent_url
    ))];
    if let Some(digest) = payload.agent_sha256 {
        // The digest is ours and hexadecimal: nothing of a stranger's reaches this shell.
        let check =
            format!("echo '{digest}  {AGENT_PATH}' | sha256sum --check --strict || {{ rm -f {AGENT_PATH}; exit 1; }}");
        commands.push(vec!["sh".to_owned(), "-c".to_owned(), check]);
    }
    commands.push(words(&format!("chmod 0755 {AGENT_PATH}")));
    commands
}

fn links(roce: &[RoceAssignment]) -> Vec<RoceLink> {
    let numbered = (FIRST_ROCE_TABLE..).zip(roce);
    numbered
        .map(|(table, one)| RoceLink {
            table,
            interface: one.interface.clone(),
            address: one.ipv4_cidr.addr(),
            gateway: peer(one),
        })
        .collect()
}

/// The other end of a link: the other address of a /31, else the first host of the subnet.
fn peer(one: &RoceAssignment) -> Ipv4Addr {
    let address = one.ipv4_cidr.addr();
    if one.ipv4_cidr.prefix_len() == 31 {
        return Ipv4Addr::from(u32::from(address) ^ 1);
    }
    one.ipv4_cidr.hosts().find(|host| *host != address).unwrap_or(address)
}
