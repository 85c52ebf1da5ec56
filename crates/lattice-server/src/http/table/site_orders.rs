//! Routes of what operators tell a site besides its settings.

use lattice_api::site::{ConformanceView, NameFingerprint, PullBrake, SiteView};

use super::super::site_orders;
use super::super::surface::{Route, Surface};
use super::{ADMIN, READ};

/// Adds them.
pub fn routes(surface: Surface) -> Surface {
    surface
        .route(
            Route::post("/api/v1/admin/sites/{id}/brake", ADMIN, "Hold back what the loss of a site's nodes brings")
                .takes::<PullBrake>()
                .answers::<SiteView>(200, "The site"),
            site_orders::brake,
        )
        .route(
            Route::delete("/api/v1/admin/sites/{id}/brake", ADMIN, "Let go of what a brake holds back")
                .answers::<SiteView>(200, "The site"),
            site_orders::let_go,
        )
        .route(
            Route::get("/api/v1/admin/sites/{id}/conformance", READ, "Fingerprints of a site, approved and reported")
                .answers::<ConformanceView>(200, "By SKU, the most frequent first"),
            site_orders::conformance,
        )
        .route(
            Route::post("/api/v1/admin/sites/{id}/conformance/approve", ADMIN, "Approve a fingerprint")
                .takes::<NameFingerprint>()
                .answers::<ConformanceView>(200, "All of them"),
            site_orders::approve,
        )
        .route(
            Route::post(
                "/api/v1/admin/sites/{id}/conformance/withdraw",
                ADMIN,
                "Take the approval of a fingerprint back",
            )
            .takes::<NameFingerprint>()
            .answers::<ConformanceView>(200, "All of them"),
            site_orders::withdraw,
        )
}
