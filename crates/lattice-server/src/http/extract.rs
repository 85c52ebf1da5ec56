//! What handlers take from a request: parsed once, refused with the field's name and what would be right.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use lattice_core::change::{Change, Commit, Guard, Outcome};
use lattice_core::command;
use lattice_core::explain::{Code, NextAction};
use lattice_core::ids::{CorrelationId, EventSeq, Generation, IdSource, JobId, LeaseEpoch, NodeId, OpId};
use lattice_core::time::Timestamp;
use lattice_store::{EventFilter, PageRequest};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::App;
use crate::auth::Caller;
use crate::error::{Answer, Refusal};

/// Longest idempotency key, in characters.
const MAX_KEY: usize = 128;

/// Longest reason that is kept, in characters: it stands in audit, history and page.
pub const MAX_REASON: usize = 500;

/// A query string.
pub struct Query<Q>(pub Q);

impl<Q: DeserializeOwned + Send> FromRequestParts<App> for Query<Q> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Answer<Self> {
        axum::extract::Query::<Q>::try_from_uri(&parts.uri).map(|query| Self(query.0)).map_err(|rejection| {
            let text = rejection.body_text();
            let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
            wrong_field(text, None)
        })
    }
}

/// A word that stands for several statuses, and which they are.
pub type StatusAlias<S> = (&'static str, fn(S) -> bool);

/// The statuses that a filter's word names: one of them, or those of an alias.
///
/// # Errors
/// It names none: 400 with all words.
pub fn statuses_named<S>(text: &str, aliases: &[StatusAlias<S>]) -> Answer<Vec<S>>
where
    S: Copy + std::str::FromStr + std::fmt::Display + strum::VariantArray,
{
    let all = S::VARIANTS.iter().copied();
    if let Some((_, has)) = aliases.iter().find(|(alias, _)| *alias == text) {
        return Ok(all.filter(|status| has(*status)).collect());
    }
    text.parse().map(|status| vec![status]).map_err(|_| {
        let aliases = aliases.iter().map(|(alias, _)| (*alias).to_owned());
        let known: Vec<String> = aliases.chain(all.map(|status| status.to_string())).collect();
        Refusal::malformed("status", format!("must be {}", known.join(", ")))
    })
}

/// A limit and a cursor, checked.
///
/// # Errors
/// A limit outside 1 to 1000.
pub fn page_request(cursor: Option<String>, limit: Option<u32>) -> Answer<PageRequest> {
    use lattice_api::page::{DEFAULT_LIMIT, MAX_LIMIT};
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Refusal::malformed("limit", format!("must be 1 to {MAX_LIMIT}, not {limit}")));
    }
    Ok(PageRequest { cursor: cursor.map(lattice_store::Cursor::from_text), limit: limit as usize })
}

/// A path segment that is an id.
///
/// # Errors
/// It is not a UUID: 404, because nothing can have that id.
pub fn parse_id<T: std::str::FromStr>(noun: &str, text: &str) -> Answer<T>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| {
        Refusal::new(Code::NotFound, format!("no {noun} has that id: {error}"))
            .next(NextAction::run(format!("lattice {noun} list"), "shows those that there are"))
    })
}

/// A request that changes something: who, with what body, and what makes a repeat of it harmless.
pub struct Write<B> {
    /// Who asks.
    pub caller: Caller,
    /// When it came.
    pub at: Timestamp,
    /// The parsed body.
    pub body: B,
    /// What it is committed as.
    pub op: OpId,
    /// What it belongs to. With an idempotency key it follows from key and body, so that a repeat is recognised.
    pub correlation: CorrelationId,
    /// What the first request with the same key did, if this is a repeat.
    pub earlier: Option<Earlier>,
    if_match: Option<Generation>,
}

/// No body at all.
#[derive(Debug, Default)]
pub struct NoBody;

/// What an earlier request with the same idempotency key touched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Earlier {
    /// The node.
    pub node: Option<NodeId>,
    /// The job.
    pub job: Option<JobId>,
    /// Kind and id of whatever else.
    pub other: Option<(String, String)>,
}

/// What became of a commit that a handler asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// It is durable now.
    Now,
    /// The same request was committed before, by a repeat that overtook this one.
    Earlier(Earlier),
}

/// What becomes a body. JSON objects do; so does the absence of one where none is asked.
pub trait FromBody: Sized + Send + Sync {
    /// Reads the bytes of a body.
    ///
    /// # Errors
    /// Not JSON, an unknown field, a missing one, or one of another type: 400 naming it; another media type: 415.
    fn from_body(headers: &HeaderMap, bytes: &Bytes) -> Answer<Self>;
}

impl FromBody for NoBody {
    fn from_body(_: &HeaderMap, bytes: &Bytes) -> Answer<Self> {
        if bytes.is_empty() || bytes.as_ref() == b"{}" {
            return Ok(Self);
        }
        Err(Refusal::new(Code::Malformed, "this request takes no body"))
    }
}

impl<B: DeserializeOwned + Send + Sync> FromBody for B {
    fn from_body(headers: &HeaderMap, bytes: &Bytes) -> Answer<Self> {
        let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case("application/json") {
            return Err(Refusal::new(Code::Unsupported, format!("the body is `{media_type}`, not `application/json`"))
                .next(NextAction::Fix { what: "send JSON with `Content-Type: application/json`".to_owned() }));
        }
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let body = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            let path = error.path().to_string();
            // The parser's own marks: `.` is the whole body, `?` a place that it did not reach.
            wrong_field(&error.inner().to_string(), Some(path).filter(|path| !matches!(path.as_str(), "." | "?")))
        })?;
        deserializer.end().map_err(|error| wrong_field(&error.to_string(), None))?;
        Ok(body)
    }
}

/// A refusal that names the field: from the parser's path, else from its message.
fn wrong_field(message: &str, path: Option<String>) -> Refusal {
    let message: String = message.chars().take(300).collect();
    let named = |prefix: &str| Some(message.strip_prefix(prefix)?.split('`').next()?.to_owned());
    let leaf = named("unknown field `").or_else(|| named("missing field `"));
    let field = match (path, leaf) {
        (Some(path), Some(leaf)) if path != leaf && !path.ends_with(&format!(".{leaf}")) => {
            Some(format!("{path}.{leaf}"))
        }
        (Some(path), _) => Some(path),
        (None, Some(leaf)) => Some(leaf),
        (None, None) => {
            message.split_once(": ").map(|(field, _)| field.to_owned()).filter(|field| !field.contains(' '))
        }
    };
    let remedy = if message.starts_with("unknown field") {
        "leave it out, or see /api/v1/openapi.json for the right name"
    } else if message.starts_with("missing field") {
        "add it; /api/v1/openapi.json describes it"
    } else {
        "see /api/v1/openapi.json for what it must be"
    };
    let mut problem = lattice_api::error::Problem::new(StatusCode::BAD_REQUEST, Code::Malformed, message)
        .next(NextAction::Fix { what: remedy.to_owned() });
    problem.field = field;
    problem.into()
}

impl<B: FromBody> FromRequest<App> for Write<B> {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &App) -> Answer<Self> {
        let (parts, body) = request.into_parts();
        let caller = parts.extensions.get::<Caller>().cloned().ok_or_else(|| {
            Refusal::new(Code::Internal, "a route that changes something was reached without a caller")
        })?;
        let bytes = read(body, app.limits.max_body_bytes).await?;
        let body = B::from_body(&parts.headers, &bytes)?;
        let at = app.clock.now();
        let fresh = parts.extensions.get::<CorrelationId>().copied();
        let correlation = fresh.unwrap_or_else(|| CorrelationId::generate(&*app.ids, at));
        let mut write = Self {
            caller,
            at,
            body,
            op: OpId::generate(&*app.ids, at),
            correlation,
            earlier: None,
            if_match: if_match(&parts.headers)?,
        };
        if let Some(key) = idempotency_key(&parts.headers)? {
            write.op = OpId::new(digest(&[&write.caller.name, &key]));
            let text = String::from_utf8_lossy(&bytes);
            let target = format!("{} {}", parts.method, parts.uri);
            write.correlation = CorrelationId::new(digest(&[&write.caller.name, &key, &target, &text]));
            write.earlier = earlier(app, &write).await?;
        }
        Ok(write)
    }
}

impl<B: Send + Sync> Write<B> {
    /// The request as commands take it.
    pub fn request<'a>(&self, ids: &'a dyn IdSource, reason: &str) -> command::Request<'a> {
        command::Request {
            actor: self.caller.actor(),
            reason: reason.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect(),
            now: self.at,
            ids,
            op: self.op,
            correlation: self.correlation,
        }
    }

    /// Refuses when the caller read an older version of the row.
    ///
    /// # Errors
    /// `If-Match` names another generation: 412.
    pub fn check_version(&self, have: Generation) -> Answer<()> {
        match self.if_match {
            Some(expected) if expected != have => Err(Refusal::new(
                Code::StaleVersion,
                format!("the row has generation {}, the request was made for {}", have.0, expected.0),
            )
            .next(NextAction::Fix { what: "read it again, and decide on what it is now".to_owned() })),
            Some(_) | None => Ok(()),
        }
    }

    /// Commits, and says what became of it.
    ///
    /// # Errors
    /// Somebody was faster, a name is taken, or the store fails.
    pub async fn commit(&self, app: &App, commit: Commit) -> Answer<Committed> {
        match app.store.commit_one(commit).await? {
            Outcome::Applied { .. } => Ok(Committed::Now),
            Outcome::Duplicate { seq } => {
                let earlier = what_happened(app, seq, self.correlation).await?;
                earlier.map(Committed::Earlier).ok_or_else(key_reused)
            }
            Outcome::Conflict { resource, have } => Err(conflict(&resource, &have)),
            Outcome::Missing { resource } => {
                Err(Refusal::new(Code::NotFound, format!("{resource} is not there any more")))
            }
            Outcome::Fenced => Err(Refusal::new(Code::Unavailable, "another server took over; ask again")),
        }
    }
}

fn conflict(resource: &str, have: &str) -> Refusal {
    if resource.starts_with("hostname")
        || resource.starts_with("site name")
        || resource.starts_with("provider_ref")
        || resource.starts_with("BMC address")
    {
        return Refusal::new(Code::Taken, format!("{resource} is taken by {have}"));
    }
    if resource.starts_with("BMC address") {
        return Refusal::new(Code::Taken, format!("{resource} is taken by node {have}"))
            .next(NextAction::run(format!("lattice explain node {have}"), "says what that node is"));
    }
    let is_key = ["webhook name", "profile name", "power override by", "RoCE address", "node of"];
    if is_key.iter().any(|key| resource.starts_with(key)) {
        return Refusal::new(Code::Taken, format!("{resource} is taken by {have}"));
    }
    if resource.starts_with("live job") {
        return Refusal::new(Code::NodeBusy, format!("{resource}: {have} is not over"))
            .next(NextAction::Fix { what: "wait for that job, or cancel it".to_owned() });
    }
    Refusal::new(Code::StaleVersion, format!("{resource} changed while this was decided (now {have})"))
        .status(StatusCode::CONFLICT)
        .next(NextAction::Fix { what: "send the request again".to_owned() })
}

/// A body of at most so many bytes.
pub async fn read(body: Body, max: usize) -> Answer<Bytes> {
    match Limited::new(body, max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Refusal::new(Code::TooLarge, format!("the body is larger than {max} bytes"))
                .next(NextAction::Fix { what: "send it in parts".to_owned() }))
        }
        Err(_) => Err(Refusal::new(Code::Malformed, "the body broke off")),
    }
}

fn idempotency_key(headers: &HeaderMap) -> Answer<Option<String>> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    match value.to_str().ok().filter(|key| (1..=MAX_KEY).contains(&key.len())) {
        Some(key) => Ok(Some(key.to_owned())),
        None => Err(Refusal::malformed("Idempotency-Key", format!("must be 1 to {MAX_KEY} printable characters"))),
    }
}

fn if_match(headers: &HeaderMap) -> Answer<Option<Generation>> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().trim_matches('"').parse().ok());
    match number {
        Some(number) => Ok(Some(Generation(number))),
        None => Err(Refusal::malformed("If-Match", "must be the row's generation, such as \"7\"")),
    }
}

/// A UUID drawn from texts; each is preceded by its length, so that their borders count.
fn digest(parts: &[&str]) -> Uuid {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    let hash = hasher.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// Whether a request with this key was committed before, and what it did.
///
/// Asked with a commit that can never be applied: ops are judged before guards, so the answer is `Duplicate` exactly
/// when the op is known, and nothing is written in any case.
async fn earlier<B: Send + Sync>(app: &App, write: &Write<B>) -> Answer<Option<Earlier>> {
    let nothing = Commit {
        op: write.op,
        guards: vec![Guard::Lease { name: "idempotency/never-held".to_owned(), epoch: LeaseEpoch(u64::MAX >> 1) }],
        changes: Vec::<Change>::new(),
        actor: write.caller.actor(),
        reason: String::new(),
        at: write.at,
        correlation: write.correlation,
    };
    match app.store.commit_one(nothing).await? {
        Outcome::Duplicate { seq } => match what_happened(app, seq, write.correlation).await? {
            Some(earlier) => Ok(Some(earlier)),
            None => Err(key_reused()),
        },
        Outcome::Applied { .. } | Outcome::Conflict { .. } | Outcome::Missing { .. } | Outcome::Fenced => Ok(None),
    }
}

fn key_reused() -> Refusal {
    Refusal::new(Code::KeyReused, "the idempotency key was used with another request")
        .next(NextAction::Fix { what: "use a new key for each new request".to_owned() })
}

/// What the commit did whose last event is `seq`: none when it belongs to another request.
async fn what_happened(app: &App, seq: EventSeq, correlation: CorrelationId) -> Answer<Option<Earlier>> {
    /// Events of one commit, at most: a request creates a node, its job and a token.
    const EVENTS: u64 = 8;
    let after = EventSeq(seq.0.saturating_sub(EVENTS));
    let events = app.store.events(after, &EventFilter::default(), EVENTS as usize).await?;
    let ours: Vec<_> =
        events.iter().filter(|event| event.seq <= seq && event.row.correlation == correlation.to_string()).collect();
    if ours.is_empty() {
        return Ok(None);
    }
    let mut earlier = Earlier::default();
    for event in ours {
        match event.row.resource_kind.as_str() {
            "node" => earlier.node = event.row.resource_id.parse().ok(),
            "job" => earlier.job = event.row.resource_id.parse().ok(),
            _ => earlier.other = Some((event.row.resource_kind.clone(), event.row.resource_id.clone())),
        }
        earlier.node = earlier.node.or(event.row.node);
    }
    Ok(Some(earlier))
}

/// Whether a method may change something.
pub fn is_unsafe(method: &Method) -> bool {
    !method.is_safe()
}
