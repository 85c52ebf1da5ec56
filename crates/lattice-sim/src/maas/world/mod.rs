//! The simulated region as a deterministic value: requests and time go in, answers and effects come out.
//!
//! No clock, no IO, no task. The server and the machine runner drive it; a test can do so by hand.

mod answer;
mod events;
mod groups;
mod interfaces;
mod lifecycle;
mod listing;
mod machines;
mod metadata;
mod network;
mod physical;
mod power;
mod progress;
mod settings;
mod storage;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::Timestamp;

use self::events::EventLog;
pub(super) use self::events::event_date;
pub use self::events::{Event, Level};
pub(super) use self::groups::Groups;
pub(super) use self::network::Network;
use self::physical::{Asset, AssetIndex};
pub use self::physical::{BmcCommand, BmcError, MachineFacts};
use self::progress::Due;
use self::settings::Settings;
use super::config::{ADMIN, FirstBoot, SiteConfig, Timings, UnknownFields};
use super::faults::{Faults, MachineFault, SiteFault};
use super::node::Node;
use super::oauth::{ApiKey, Caller, Claim, KeyRing};
use super::quirk::{Quirk, Quirks};
use super::report::{Report, Unknown, UnknownRequest};
use super::route::{self, Endpoint, Fields, Lookup, ROUTES};
use super::status::NodeStatus;
use super::wire::{Method, Request, Response};
use crate::dice::Dice;

/// Unknown requests and refused changes that the report keeps: the first ones tell the story.
const MAX_NOTES: usize = 1000;

/// `Err` is an answer too: the one that refuses.
type Answer = Result<Response, Response>;

/// The simulated region with the machines it manages.
pub struct MaasWorld {
    dice: Dice,
    timings: Timings,
    first_boot: FirstBoot,
    unknown_fields: UnknownFields,
    url: String,
    keys: KeyRing,
    quirks: Quirks,
    faults: Faults,
    assets: Vec<Asset>,
    index: AssetIndex,
    nodes: BTreeMap<String, Node>,
    network: Network,
    groups: Groups,
    settings: Settings,
    events: EventLog,
    due: BTreeMap<(Timestamp, u64), Due>,
    effects: Vec<Effect>,
    last_id: u32,
    last_timer: u64,
    last_key: u64,
    calls: BTreeMap<(Method, &'static str, Option<&'static str>), u64>,
    unknown: Vec<UnknownRequest>,
    refused_transitions: Vec<String>,
}

/// Something that happened to a machine and that whoever plays the machines must carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// An installed system boots.
    Booted(Boot),
    /// A machine lost power.
    PoweredOff {
        /// Label of the machine.
        label: String,
    },
    /// The disks of a machine were given up: what was installed is gone.
    Wiped {
        /// Label of the machine.
        label: String,
    },
}

/// An installed system boots on a machine.
#[derive(Clone, PartialEq, Eq)]
pub struct Boot {
    /// Label of the machine.
    pub label: String,
    /// Its record in MAAS.
    pub system_id: String,
    /// Host name at the time of the deployment.
    pub hostname: String,
    /// Which deployment of this machine it is, from 1.
    pub deployment: u64,
    /// Whether cloud-init runs for the first time on this system.
    pub first: bool,
    /// The address at which it is reached.
    pub address: Ipv4Addr,
    /// What MAAS handed over as user-data.
    pub user_data: Vec<u8>,
    /// The machine's own key, with which it calls the region.
    pub token: ApiKey,
}

impl std::fmt::Debug for Boot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { label, system_id, hostname, deployment, first, address, user_data: _, token: _ } = self;
        write!(f, "Boot({label} {system_id} {hostname} deployment={deployment} first={first} {address})")
    }
}

/// One call on its way to its operation.
struct Call<'a> {
    request: &'a Request,
    args: Vec<String>,
    caller: Caller,
    now: Timestamp,
}

impl Call<'_> {
    fn arg(&self, position: usize) -> &str {
        self.args.get(position).map_or("", String::as_str)
    }

    fn number(&self, position: usize) -> u32 {
        self.arg(position).parse().unwrap_or(u32::MAX)
    }

    /// The name of the user who calls.
    fn user(&self) -> &str {
        match &self.caller {
            Caller::User(name) => name,
            Caller::Machine(_) | Caller::Anonymous => "",
        }
    }
}

impl MaasWorld {
    /// A region at rest: its network and settings exist, its machines stand in their racks without power.
    pub fn new(config: SiteConfig) -> Self {
        let mut keys = KeyRing::default();
        keys.add(config.admin_key.clone(), Caller::User(ADMIN.into()));
        let assets: Vec<Asset> = config.population.machines.into_iter().map(Asset::new).collect();
        Self {
            dice: Dice(config.seed),
            timings: config.timings,
            first_boot: config.first_boot,
            unknown_fields: config.unknown_fields,
            url: config.url,
            keys,
            quirks: config.quirks,
            faults: config.faults,
            index: AssetIndex::of(&assets),
            assets,
            nodes: BTreeMap::new(),
            network: Network::initial(),
            groups: Groups::initial(),
            settings: Settings::initial(),
            events: EventLog::default(),
            due: BTreeMap::new(),
            effects: Vec::new(),
            last_id: 0,
            last_timer: 0,
            last_key: 0,
            calls: BTreeMap::new(),
            unknown: Vec::new(),
            refused_transitions: Vec::new(),
        }
    }

    /// Answers one request as the region would at `now`.
    pub fn handle(&mut self, request: &Request, now: Timestamp) -> Response {
        // Site faults are for callers of the API: machines reach the region through their rack, and ask until it answers.
        let by_machine = route::below_root(&request.path).is_some_and(|path| path.starts_with("metadata/"));
        let site_fault = if by_machine { None } else { self.faults.strikes_site() };
        let delay = match site_fault {
            Some(SiteFault::Down) => return Response::dropped(),
            Some(SiteFault::Html) => return Response::html(502, "<html><body><h1>502 Bad Gateway</h1></body></html>"),
            Some(SiteFault::NoRack) => {
                return Response::text(503, "Unable to connect to any rack controller.").retry_after(1);
            }
            Some(SiteFault::SerializationConflict) => return self.serialization_conflict(request),
            Some(SiteFault::Slow { delay_ms }) => Duration::from_millis(u64::from(delay_ms)),
            Some(SiteFault::GatewayTimeout) | None => Duration::ZERO,
        };
        let response = self.route(request, now).unwrap_or_else(|refusal| refusal).after(delay);
        if site_fault == Some(SiteFault::GatewayTimeout) && self.quirks.meet(Quirk::GatewayTimeoutWorksOn) {
            return Response::html(504, "<html><body><h1>504 Gateway Time-out</h1></body></html>");
        }
        response
    }

    /// Lets time pass until `now`: what is due happens, in order. Returns all effects since the last call.
    pub fn advance(&mut self, now: Timestamp) -> Vec<Effect> {
        while let Some(((at, number), _)) = self.due.first_key_value() {
            if *at > now {
                break;
            }
            let (at, key) = (*at, (*at, *number));
            if let Some(due) = self.due.remove(&key) {
                self.happen(due, at);
            }
        }
        std::mem::take(&mut self.effects)
    }

    /// When something is due next.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// The faults, to arm and heal at run time.
    pub const fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// What the region saw of its clients so far.
    pub fn report(&self) -> Report {
        let name = |(method, path, op): &(Method, &str, Option<&str>)| match op {
            Some(op) => format!("{} {path}?op={op}", method.name()),
            None => format!("{} {path}", method.name()),
        };
        Report {
            quirks: self.quirks.hits().clone(),
            calls: self.calls.iter().map(|(key, count)| (name(key), *count)).collect(),
            unknown_requests: self.unknown.clone(),
            refused_transitions: self.refused_transitions.clone(),
            faults: self.faults.all().to_vec(),
            nonces_stored: self.keys.nonces_stored(),
        }
    }

    /// The event log, oldest first: the same seed and the same calls give the same log.
    pub fn events(&self) -> &[Event] {
        self.events.all()
    }

    /// Where machines reach the region; known once the listener is bound.
    pub fn set_url(&mut self, url: String) {
        self.url = url;
    }

    /// Finds the operation, checks credentials and parameters, and performs it.
    fn route(&mut self, request: &Request, now: Timestamp) -> Answer {
        let Some(path) = self.path_below_root(&request.path) else {
            return Err(self.unknown_request(request, Unknown::Path));
        };
        let (row, args) = match route::look_up(request, &path) {
            Lookup::Found(row, args) => (row, args),
            Lookup::NoSuchOperation => return Err(self.unknown_request(request, Unknown::Operation)),
            Lookup::NoSuchPath => return Err(self.unknown_request(request, Unknown::Path)),
        };
        *self.calls.entry((row.method, row.path, row.op)).or_default() += 1;
        let caller = self.authenticate(request, row.endpoint, now)?;
        self.check_fields(request, row.endpoint, row.fields)?;
        self.dispatch(row.endpoint, &Call { request, args, caller, now })
    }

    /// The path below the API root, with the leniencies of quirks that are off.
    fn path_below_root(&mut self, path: &str) -> Option<String> {
        let path = route::below_root(path)?;
        let known = |path: &str| ROUTES.iter().any(|row| row.path.split('/').next() == path.split('/').next());
        if let Some(rest) = path.strip_prefix("resourcepools/").filter(|rest| !rest.is_empty()) {
            if self.quirks.meet(Quirk::PoolPathSingular) {
                return None;
            }
            return Some(format!("resourcepool/{rest}"));
        }
        if path.ends_with('/') || path.starts_with("metadata/") || !known(path) {
            return Some(path.to_owned());
        }
        (!self.quirks.meet(Quirk::TrailingSlashRequired)).then(|| format!("{path}/"))
    }

    fn authenticate(&mut self, request: &Request, endpoint: Endpoint, now: Timestamp) -> Result<Caller, Response> {
        let access = access(endpoint);
        let Some(header) = request.authorization.as_deref() else {
            return match access {
                Access::Open => Ok(Caller::Anonymous),
                Access::User { anonymous_handler: true } if self.quirks.meet(Quirk::UnrecognisedSignature) => {
                    Err(unrecognised_signature(request))
                }
                Access::User { .. } | Access::Machine => Err(self.unauthorised("Unauthorized.")),
            };
        };
        if access == Access::Open {
            return Ok(Caller::Anonymous);
        }
        let now_s = now.as_second();
        let claim = Claim::parse(header).map_err(|refusal| self.unauthorised(&refusal.to_string()))?;
        let caller = match self.keys.identify(&claim, now_s) {
            Ok(caller) => caller,
            Err(refusal) => return Err(self.unauthorised(&refusal.to_string())),
        };
        if claim.ahead_s(now_s) > 300 && !self.quirks.meet(Quirk::FutureTimestampAccepted) {
            return Err(self.unauthorised("Authorization Error: Expired timestamp."));
        }
        if !self.keys.spend_nonce(&claim) && self.quirks.meet(Quirk::NonceReuseRefused) {
            return Err(self.unauthorised("Authorization Error: Nonce already used."));
        }
        let admitted = match &caller {
            Caller::Machine(_) => access == Access::Machine,
            Caller::User(_) => matches!(access, Access::User { .. }),
            Caller::Anonymous => false,
        };
        if admitted { Ok(caller) } else { Err(self.unauthorised("Authorization Error: Invalid API key.")) }
    }

    fn check_fields(&mut self, request: &Request, endpoint: Endpoint, fields: Fields) -> Result<(), Response> {
        let sent = request.query.iter().filter(|(key, _)| *key != "op").chain(request.form.iter());
        let unknown: BTreeSet<String> = sent.map(|(key, _)| key.to_owned()).filter(|key| !fields.know(key)).collect();
        let Some(first) = unknown.first().cloned() else { return Ok(()) };
        for name in unknown {
            self.note_unknown(request, Unknown::Field(name));
        }
        let constraint =
            [Endpoint::MachinesRead, Endpoint::MachinesAllocate, Endpoint::MachinesListAllocated].contains(&endpoint);
        match (constraint, self.unknown_fields) {
            (true, _) => Err(Response::form_error(&first, "No such constraint.")),
            (false, UnknownFields::Refuse) => Err(Response::form_error(&first, "Unknown field.")),
            (false, UnknownFields::Ignore) => Ok(()),
        }
    }

    fn unknown_request(&mut self, request: &Request, what: Unknown) -> Response {
        let response = match what {
            Unknown::Operation => unrecognised_signature(request),
            Unknown::Path | Unknown::Field(_) | Unknown::Value(_) => Response::text(404, "Unknown API endpoint"),
        };
        self.note_unknown(request, what);
        response
    }

    fn note_unknown(&mut self, request: &Request, what: Unknown) {
        if self.unknown.len() >= MAX_NOTES {
            return;
        }
        let op = request.op().map(|op| format!("?op={op}")).unwrap_or_default();
        let call = format!("{} {}{op}", request.method.name(), request.path);
        self.unknown.push(UnknownRequest { call, what });
    }

    fn serialization_conflict(&mut self, request: &Request) -> Response {
        // A read needs no write lock, so it never conflicts.
        if request.method == Method::Get {
            return Response::text(503, "The region is busy.").retry_after(1);
        }
        let status = if self.quirks.meet(Quirk::RetryableConflict) { 409 } else { 503 };
        Response::text(status, "could not serialize access due to concurrent update").retry_after(5)
    }

    fn unauthorised(&mut self, sentence: &str) -> Response {
        if self.quirks.meet(Quirk::UnauthorisedIsHtml) {
            Response::html(401, sentence)
        } else {
            Response::text(401, sentence)
        }
    }

    fn forbidden(&mut self, sentence: &str) -> Response {
        if self.quirks.meet(Quirk::EmptyForbidden) { Response::empty(403) } else { Response::text(403, sentence) }
    }

    /// A new id for a row of the region.
    const fn new_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// The machine of this system id.
    fn node(&self, system_id: &str) -> Result<&Node, Response> {
        self.nodes.get(system_id).ok_or_else(no_such_machine)
    }

    fn node_mut(&mut self, system_id: &str) -> Result<&mut Node, Response> {
        self.nodes.get_mut(system_id).ok_or_else(no_such_machine)
    }

    /// Whether a fault strikes this machine; counts the hit.
    pub(crate) fn strikes(&mut self, what: MachineFault, system_id: &str) -> bool {
        let Some(node) = self.nodes.get(system_id) else { return false };
        let label = self.asset_of(node).map(|asset| self.assets[asset].hardware.label.clone());
        let names = node.names(label.as_deref());
        self.faults.strikes(what, &names)
    }

    /// Changes the status where the table allows it and says so in the events.
    ///
    /// # Errors
    /// 409 `Invalid transition: A -> B.`, 404 when there is no such machine.
    fn change_status(&mut self, system_id: &str, to: NodeStatus, now: Timestamp) -> Result<(), Response> {
        let node = self.node_mut(system_id)?;
        let from = node.status;
        let (from_label, to_label) = (from.row().label, to.row().label);
        if !from.may_go_to(to) {
            let text = format!("Invalid transition: {from_label} -> {to_label}.");
            if self.refused_transitions.len() < MAX_NOTES {
                self.refused_transitions.push(format!("{system_id}: {text}"));
            }
            return Err(Response::text(409, text));
        }
        node.status = to;
        node.epoch += 1;
        node.status_message = Some(to_label.to_owned());
        let description = format!("From '{from_label}' to '{to_label}'");
        self.record(system_id, Level::Debug, "Node changed status", &description, now);
        Ok(())
    }

    /// Writes an event about a machine.
    fn record(&mut self, system_id: &str, level: Level, kind: &'static str, description: &str, now: Timestamp) {
        let hostname = self.nodes.get(system_id).map_or_else(String::new, |node| node.hostname.clone());
        self.events.push(Event {
            id: 0,
            system_id: system_id.to_owned(),
            hostname,
            level,
            kind,
            description: description.to_owned(),
            at: now,
        });
    }
}

/// Who may call an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Anyone.
    Open,
    /// A user. Some resources have an anonymous handler, which answers 400 where others answer 401.
    User { anonymous_handler: bool },
    /// A machine with the key of its preseed.
    Machine,
}

fn access(endpoint: Endpoint) -> Access {
    const OPEN: [Endpoint; 2] = [Endpoint::VersionRead, Endpoint::Preseed];
    const MACHINE: [Endpoint; 4] =
        [Endpoint::Signal, Endpoint::NetbootOff, Endpoint::UserData, Endpoint::StatusMessage];
    if OPEN.contains(&endpoint) {
        return Access::Open;
    }
    if MACHINE.contains(&endpoint) {
        return Access::Machine;
    }
    let path = ROUTES.iter().find(|row| row.endpoint == endpoint).map_or("", |row| row.path);
    Access::User { anonymous_handler: path.starts_with("machines/") || path == "nodes/{}/" }
}

fn unrecognised_signature(request: &Request) -> Response {
    let op = request.op().unwrap_or("None");
    Response::text(400, format!("Unrecognised signature: method={} op={op}", request.method.name()))
}

fn no_such_machine() -> Response {
    Response::text(404, "No Machine matches the given query.")
}
