//! Routes of agents' tasks and of the keys that sign them.

use lattice_api::node::Reason;
use lattice_api::server::AgentCa;
use lattice_api::task::{TaskQuery, TaskRow, TaskSigningKeys, TaskView};

use super::super::surface::{Route, Surface};
use super::super::{server, tasks};
use super::{ADMIN, READ};

/// Adds them.
pub(super) fn routes(surface: Surface) -> Surface {
    surface
        .route(
            Route::get(
                "/api/v1/admin/nodes/{id}/tasks",
                READ,
                "What the agent of a node was asked to do, newest first",
            )
            .query::<TaskQuery>()
            .answers_page::<TaskRow>("One page"),
            tasks::of_node,
        )
        .route(
            Route::post("/api/v1/admin/nodes/{id}/check", ADMIN, "Ask the agent of a node how its host is, now")
                .takes::<Reason>()
                .answers::<TaskView>(202, "The task that asks"),
            tasks::check,
        )
        .route(
            Route::get("/api/v1/admin/tasks/{id}", READ, "A task, with what its agent said")
                .answers::<TaskView>(200, "The task"),
            tasks::get,
        )
        .route(
            Route::post("/api/v1/admin/tasks/{id}/cancel", ADMIN, "Withdraw a task that its agent does not have yet")
                .takes::<Reason>()
                .answers::<TaskView>(200, "The task"),
            tasks::cancel,
        )
        .route(
            Route::get("/api/v1/admin/task-signing-keys", READ, "The keys that sign tasks")
                .answers::<TaskSigningKeys>(200, "Their public halves"),
            tasks::keys,
        )
        .route(
            Route::get("/api/v1/admin/agent-ca", READ, "Whom agents trust as their server")
                .answers::<AgentCa>(200, "Certificates for images that boot from the network"),
            server::agent_ca,
        )
        .route(
            Route::post("/api/v1/admin/task-signing-keys/rotate", ADMIN, "Sign tasks with a new key from now on")
                .takes::<Reason>()
                .answers::<TaskSigningKeys>(200, "The new key, and those that are trusted still"),
            tasks::rotate_keys,
        )
}
