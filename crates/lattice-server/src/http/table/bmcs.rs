//! Routes of BMCs.

use lattice_api::bmc::{BmcCheck, BmcView, SetBmc};
use lattice_api::node::Reason;

use super::super::bmc;
use super::super::surface::{Route, Surface};
use super::{ADMIN, READ};

/// Adds them.
pub fn routes(surface: Surface) -> Surface {
    surface
        .route(
            Route::get("/api/v1/admin/nodes/{id}/bmc", READ, "A node's BMC: who uses it, what it said last")
                .answers::<BmcView>(200, "The BMC"),
            bmc::get,
        )
        .route(
            Route::patch("/api/v1/admin/nodes/{id}/bmc", ADMIN, "Set a node's BMC and its login")
                .takes::<SetBmc>()
                .answers::<BmcView>(200, "The BMC"),
            bmc::set,
        )
        .route(
            Route::post("/api/v1/admin/nodes/{id}/bmc/check", ADMIN, "Look at a node's BMC now")
                .answers::<BmcCheck>(200, "What it said, or why it could not be read"),
            bmc::check,
        )
        .route(
            Route::post(
                "/api/v1/admin/nodes/{id}/bmc/reset-breaker",
                ADMIN,
                "Have a refused BMC credential tried again",
            )
            .takes::<Reason>()
            .answers::<BmcView>(200, "The BMC"),
            bmc::reset_breaker,
        )
}
