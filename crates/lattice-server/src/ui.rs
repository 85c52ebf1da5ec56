//! The web page: rendered here from what the API answers, embedded whole, one script and one stylesheet.
//!
//! Pages read through the handlers of the API, so that the two cannot differ; buttons call the API. design: 8-interfaces
//! "Web page"; docs/decisions/0003-the-page-needs-no-library.md

mod action;
mod allocations;
mod audit;
mod batches;
mod fleet;
mod job;
mod jobs;
mod node;
mod pages;
mod refusal;
mod session;
mod shell;
mod silences;
mod site;
mod site_credentials;
mod sites;
mod statics;
mod webhooks;
mod wipe;
mod words;
mod work;

use axum::Router;
use axum::routing::{MethodFilter, MethodRouter, get, on};
use http::Method;

use crate::http::App;

/// Routes of the page with their methods. Pages ask who looks themselves, because the answer to a stranger is a form and
/// no problem document; so none of them needs a role of the API's table.
pub fn routes() -> (Router<App>, Vec<(Method, &'static str)>) {
    let table: [(&'static str, MethodRouter<App>, &[Method]); 19] = [
        ("/", get(pages::root), &[Method::GET]),
        ("/ui", get(pages::root), &[Method::GET]),
        ("/ui/", get(pages::fleet), &[Method::GET]),
        ("/ui/nodes/{node}", get(pages::node), &[Method::GET]),
        ("/ui/allocations", get(pages::allocations), &[Method::GET]),
        ("/ui/jobs", get(pages::jobs), &[Method::GET]),
        ("/ui/jobs/{job}", get(pages::job), &[Method::GET]),
        ("/ui/batches", get(pages::batches), &[Method::GET]),
        ("/ui/batches/{batch}", get(pages::batch), &[Method::GET]),
        ("/ui/sites", get(pages::sites), &[Method::GET]),
        ("/ui/sites/{site}", get(pages::site), &[Method::GET]),
        ("/ui/webhooks", get(pages::webhooks), &[Method::GET]),
        ("/ui/webhooks/{webhook}", get(pages::webhook), &[Method::GET]),
        ("/ui/wipes/{certificate}", get(pages::certificate), &[Method::GET]),
        ("/ui/audit", get(pages::audit), &[Method::GET]),
        ("/ui/find", get(pages::find), &[Method::GET]),
        ("/ui/login", get(session::form), &[Method::GET]),
        (
            "/ui/session",
            get(session::known).post(session::begin).merge(on(MethodFilter::DELETE, session::end)),
            &[Method::GET, Method::POST, Method::DELETE],
        ),
        ("/ui/static/{name}", get(pages::file), &[Method::GET]),
    ];
    let mut router = Router::new();
    let mut open = Vec::new();
    for (path, methods, names) in table {
        router = router.route(path, methods);
        open.extend(names.iter().map(|method| (method.clone(), path)));
    }
    (router, open)
}
