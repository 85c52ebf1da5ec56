//! The table of routes: method, path, least role, shape and handler of each stand in one row.
//!
//! The router, the role check and the OpenAPI document are all made from the same rows, so a route without a role or
//! without a description cannot exist.

use std::collections::{BTreeMap, HashMap};

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};
use http::Method;
use lattice_api::page::Page;
use lattice_core::actor::Role;
use utoipa::openapi::path::{HttpMethod, Operation, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required, ResponseBuilder};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::App;

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody, without a token: whether the server lives, what it measures, how its API looks.
    Public,
    /// A token with at least this role.
    Least(Role),
}

/// What a route does to what it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads.
    Get,
    /// Creates or acts.
    Post,
    /// Changes.
    Patch,
    /// Ends.
    Delete,
}

/// Schemas by their names.
type Schemas = Vec<(String, RefOr<Schema>)>;

/// A method on a path, and what is said of it.
pub type Described = (Verb, &'static str, Operation);

impl Verb {
    /// Its HTTP method.
    pub const fn method(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Post => Method::POST,
            Self::Patch => Method::PATCH,
            Self::Delete => Method::DELETE,
        }
    }

    /// Its method as the description names it.
    pub const fn described(self) -> HttpMethod {
        match self {
            Self::Get => HttpMethod::Get,
            Self::Post => HttpMethod::Post,
            Self::Patch => HttpMethod::Patch,
            Self::Delete => HttpMethod::Delete,
        }
    }

    const fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Patch => MethodFilter::PATCH,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

/// One row of the table, without its handler.
pub struct Route {
    verb: Verb,
    path: &'static str,
    access: Access,
    operation: Operation,
    /// Write the schemas that the row names. Only the document needs them: a server starts without.
    schemas: Vec<fn(&mut Schemas)>,
}

impl Route {
    /// A route that reads.
    pub fn get(path: &'static str, access: Access, summary: &str) -> Self {
        Self::new(Verb::Get, path, access, summary)
    }

    /// A route that creates or acts.
    pub fn post(path: &'static str, access: Access, summary: &str) -> Self {
        Self::new(Verb::Post, path, access, summary).writes()
    }

    /// A route that changes.
    pub fn patch(path: &'static str, access: Access, summary: &str) -> Self {
        Self::new(Verb::Patch, path, access, summary).writes()
    }

    /// A route that ends something.
    pub fn delete(path: &'static str, access: Access, summary: &str) -> Self {
        Self::new(Verb::Delete, path, access, summary).writes()
    }

    fn new(verb: Verb, path: &'static str, access: Access, summary: &str) -> Self {
        let mut operation = Operation::new();
        operation.summary = Some(summary.to_owned());
        operation.operation_id = Some(operation_id(verb, path));
        operation.tags = Some(vec![tag(path)]);
        operation.security = Some(match access {
            Access::Public => Vec::new(),
            Access::Least(_) => vec![SecurityRequirement::new("token", Vec::<String>::new())],
        });
        if let Access::Least(role) = access {
            operation.description = Some(format!("Needs at least the role `{role}`."));
        }
        let mut route = Self { verb, path, access, operation, schemas: Vec::new() };
        for name in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
            let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path);
            route.parameter(parameter.required(Required::True).schema(Some(String::schema())));
        }
        route.refusal()
    }

    /// The same, taking these in its query.
    #[must_use]
    pub fn query<Q: IntoParams>(mut self) -> Self {
        let parameters = Q::into_params(|| Some(ParameterIn::Query));
        self.operation.parameters.get_or_insert_default().extend(parameters.into_iter().map(RefOr::T));
        self
    }

    /// The same, taking this JSON body.
    #[must_use]
    pub fn takes<B: ToSchema>(mut self) -> Self {
        let content = ContentBuilder::new().schema(Some(self.schema::<B>())).build();
        let body = RequestBodyBuilder::new().content("application/json", content).required(Some(Required::True));
        self.operation.request_body = Some(RefOr::T(body.build()));
        self
    }

    /// The same, answering this JSON body.
    #[must_use]
    pub fn answers<A: ToSchema>(mut self, status: u16, description: &str) -> Self {
        let schema = self.schema::<A>();
        self.answers_as(schema, status, description)
    }

    /// The same, answering a page of these. Each kind of page has a name of its own: they differ in their rows.
    #[must_use]
    pub fn answers_page<A: ToSchema>(mut self, description: &str) -> Self {
        self.schema::<A>();
        self.schemas.push(|schemas| schemas.push((page_of::<A>(), Page::<A>::schema())));
        self.answers_as(RefOr::Ref(Ref::from_schema_name(page_of::<A>())), 200, description)
    }

    fn answers_as(mut self, schema: RefOr<Schema>, status: u16, description: &str) -> Self {
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new().description(description).content("application/json", content).build();
        self.operation.responses.responses.insert(status.to_string(), RefOr::T(response));
        self
    }

    /// The same, answering 204.
    #[must_use]
    pub fn answers_nothing(mut self, description: &str) -> Self {
        let response = ResponseBuilder::new().description(description).build();
        self.operation.responses.responses.insert("204".to_owned(), RefOr::T(response));
        self
    }

    /// The same, answering text of some media type.
    #[must_use]
    pub fn answers_text(mut self, media_type: &str, description: &str) -> Self {
        let content = ContentBuilder::new().schema(Some(String::schema())).build();
        let response = self.operation.responses.responses.remove("200");
        let builder = match response {
            Some(RefOr::T(response)) => ResponseBuilder::from(response),
            Some(RefOr::Ref(_)) | None => ResponseBuilder::new().description(description),
        };
        let response = builder.content(media_type, content).build();
        self.operation.responses.responses.insert("200".to_owned(), RefOr::T(response));
        self
    }

    fn writes(mut self) -> Self {
        for (name, about) in [
            (
                "Idempotency-Key",
                "1 to 128 printable characters: a repeat with the same key and body changes nothing more",
            ),
            ("If-Match", "the row's `generation`: refused with 412 when it changed since"),
        ] {
            let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Header);
            self.parameter(parameter.required(Required::False).description(Some(about)).schema(Some(String::schema())));
        }
        self
    }

    fn refusal(mut self) -> Self {
        let schema = self.schema::<lattice_api::error::Problem>();
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new()
            .description("Refused: what, why, what next")
            .content(lattice_api::error::PROBLEM_JSON, content)
            .build();
        self.operation.responses.responses.insert("default".to_owned(), RefOr::T(response));
        self
    }

    fn parameter(&mut self, parameter: ParameterBuilder) {
        self.operation.parameters.get_or_insert_default().push(RefOr::T(parameter.build()));
    }

    fn schema<T: ToSchema>(&mut self) -> RefOr<Schema> {
        self.schemas.push(|schemas| {
            schemas.push((T::name().to_string(), T::schema()));
            T::schemas(schemas);
        });
        RefOr::Ref(Ref::from_schema_name(T::name()))
    }
}

/// All rows, as they are added.
#[derive(Default)]
pub struct Surface {
    router: Router<App>,
    access: HashMap<(Method, &'static str), Access>,
    operations: Vec<Described>,
    schemas: Vec<fn(&mut Schemas)>,
}

impl Surface {
    /// Adds a row.
    #[must_use]
    pub fn route<H, T>(mut self, route: Route, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        self.router = self.router.route(route.path, on(route.verb.filter(), handler));
        self.access.insert((route.verb.method(), route.path), route.access);
        self.operations.push((route.verb, route.path, route.operation));
        self.schemas.extend(route.schemas);
        self
    }

    /// The router, and who may use which route.
    pub fn into_router(self) -> (Router<App>, HashMap<(Method, &'static str), Access>) {
        (self.router, self.access)
    }

    /// Who may use which route.
    pub const fn access(&self) -> &HashMap<(Method, &'static str), Access> {
        &self.access
    }

    /// The operations by method and path, and the schemas that they name.
    pub fn into_document_parts(self) -> (Vec<Described>, BTreeMap<String, RefOr<Schema>>) {
        let mut schemas = Schemas::new();
        self.schemas.iter().for_each(|write| write(&mut schemas));
        (self.operations, schemas.into_iter().collect())
    }
}

/// `get_nodes_id_explain`: unique, because method and path are.
fn operation_id(verb: Verb, path: &str) -> String {
    let mut id = verb.method().as_str().to_lowercase();
    for part in path.split('/').filter(|part| !matches!(*part, "" | "api" | "v1" | "admin")) {
        id.push('_');
        id.push_str(&part.trim_matches(['{', '}']).replace(['-', '.'], "_"));
    }
    id
}

fn page_of<A: ToSchema>() -> String {
    format!("PageOf{}", A::name())
}

fn tag(path: &str) -> String {
    let mut parts = path.split('/').filter(|part| !matches!(*part, "" | "api" | "v1" | "admin"));
    parts.next().unwrap_or("server").to_owned()
}
