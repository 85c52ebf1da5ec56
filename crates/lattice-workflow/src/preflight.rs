//! What must hold before a job begins to work at a site. spec: S5 4.14

use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;
use lattice_core::site::SiteStatus;

use crate::stage::{Context, error};

/// New work is refused at a disabled site; a job that had begun goes on. spec: S5 3.5
///
/// # Errors
/// The site is disabled, and the job did nothing yet.
pub fn site_is_active(ctx: &Context<'_>) -> Result<(), StageError> {
    let has_begun = ctx.job.outputs.provider_ref.is_some();
    match ctx.site.status {
        SiteStatus::Active => Ok(()),
        SiteStatus::Disabled if has_begun => Ok(()),
        SiteStatus::Disabled => Err(error(
            FailureClass::InputConfigError,
            "site_disabled",
            format!("site {} is disabled: `lattice site enable {}`", ctx.site.name, ctx.site.name),
        )),
    }
}
