//! Routes of silences.

use lattice_api::Gone;
use lattice_api::silence::{CreateSilence, SilenceView};

use super::super::silences;
use super::super::surface::{Route, Surface};
use super::{ADMIN, READ};

/// Adds them.
pub(super) fn routes(surface: Surface) -> Surface {
    surface
        .route(
            Route::get("/api/v1/admin/silences", READ, "Silences in force, those that end first before the others")
                .answers_page::<SilenceView>("All of them"),
            silences::list,
        )
        .route(
            Route::post("/api/v1/admin/silences", ADMIN, "Say that incidents raise no attention for a while")
                .takes::<CreateSilence>()
                .answers::<SilenceView>(201, "The silence"),
            silences::create,
        )
        .route(
            Route::get("/api/v1/admin/silences/{id}", READ, "A silence").answers::<SilenceView>(200, "The silence"),
            silences::get,
        )
        .route(
            Route::delete("/api/v1/admin/silences/{id}", ADMIN, "Lift a silence before its expiry")
                .answers::<Gone>(200, "It is lifted"),
            silences::lift,
        )
}
