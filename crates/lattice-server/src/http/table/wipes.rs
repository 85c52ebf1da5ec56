//! Routes of wiped devices and of the keys that sign their certificates.

use lattice_api::node::Reason;
use lattice_api::wipe::{CertificateFile, WipeKeys, WipeQuery, WipeRow};

use super::super::surface::{Route, Surface};
use super::super::wipes;
use super::{ADMIN, READ};

/// Adds them.
pub(super) fn routes(surface: Surface) -> Surface {
    surface
        .route(
            Route::get("/api/v1/admin/wipes", READ, "Wiped devices with a certificate, newest first")
                .query::<WipeQuery>()
                .answers_page::<WipeRow>("One page"),
            wipes::list,
        )
        .route(
            Route::get("/api/v1/admin/nodes/{id}/wipes", READ, "Wiped devices of a node, newest first")
                .query::<WipeQuery>()
                .answers_page::<WipeRow>("One page"),
            wipes::of_node,
        )
        .route(
            Route::get("/api/v1/admin/wipes/{id}", READ, "The signed certificate of a wiped device")
                .answers::<CertificateFile>(200, "The certificate"),
            wipes::get,
        )
        .route(
            Route::get("/api/v1/admin/wipe-signing-keys", READ, "The keys that sign wipe certificates")
                .answers::<WipeKeys>(200, "Their public halves; none is ever forgotten"),
            wipes::keys,
        )
        .route(
            Route::post("/api/v1/admin/wipe-signing-keys/rotate", ADMIN, "Sign wipe certificates with a new key")
                .takes::<Reason>()
                .answers::<WipeKeys>(200, "The new key first, then all before"),
            wipes::rotate,
        )
}
