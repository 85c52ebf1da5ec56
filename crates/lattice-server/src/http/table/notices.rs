//! Routes of those who only tell.

use super::super::notices;
use super::super::surface::{Access, Route, Surface};

/// Adds them.
pub fn routes(surface: Surface) -> Surface {
    surface.route(
        Route::post(
            "/api/v1/notices/openchami/{id}/{key}",
            Access::Public,
            "State Manager tells that a component changed; the address is secret, and the body only a hint",
        )
        .answers_nothing("State Manager is read"),
        notices::of_openchami,
    )
}
