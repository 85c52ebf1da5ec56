//! Routes of allocations.

use lattice_api::allocation::{
    AllocationActionAnswer, AllocationQuery, AllocationRow, AllocationView, CreateAllocation,
};
use lattice_api::explanation::Explanation;
use lattice_api::node::Reason;

use super::super::allocations;
use super::super::surface::{Route, Surface};
use super::{ADMIN, READ};

/// Users' work on nodes.
pub(super) fn routes(surface: Surface) -> Surface {
    surface
        .route(
            Route::get("/api/v1/admin/allocations", READ, "Users' work on nodes, newest first")
                .query::<AllocationQuery>()
                .answers_page::<AllocationRow>("One page"),
            allocations::list,
        )
        .route(
            Route::post("/api/v1/admin/allocations", ADMIN, "Ask for a node and start something on it")
                .takes::<CreateAllocation>()
                .answers::<AllocationView>(202, "Accepted; it is placed as soon as a node fits"),
            allocations::create,
        )
        .route(
            Route::get("/api/v1/admin/allocations/{id}", READ, "An allocation")
                .answers::<AllocationView>(200, "The allocation"),
            allocations::get,
        )
        .route(
            Route::get("/api/v1/admin/allocations/{id}/explain", READ, "Why an allocation stands where it stands")
                .answers::<Explanation>(200, "The explanation"),
            allocations::explain,
        )
        .route(
            Route::post("/api/v1/admin/allocations/{id}/{verb}", ADMIN, "Release an allocation, or queue it again")
                .takes::<Reason>()
                .answers::<AllocationActionAnswer>(200, "What it came to"),
            allocations::act,
        )
}
