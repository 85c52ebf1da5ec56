//! What must hold before a job begins to work at a site: cheap, and said at once instead of an hour later. spec: S5 4.14

use std::time::Duration;

use lattice_core::failure::FailureClass;
use lattice_core::job::StageError;
use lattice_core::site::{MaasSite, OpenchamiSite, SiteStatus};
use lattice_providers::error::{ErrorKind, ProviderError};
use lattice_providers::machine::maas::MaasClient;
use lattice_providers::machine::maas::region::pxe_note;
use lattice_providers::machine::openchami::OchamiClient;
use lattice_providers::secret::read_field;

use crate::enrollment::secret_error;
use crate::providers::failed;
use crate::stage::{Context, error, store_failed};
use crate::stages::{maas, openchami};

/// How long a region that was found fit is taken for so: a batch of a thousand asks it a few times, not thousands.
const FIT_FOR: Duration = Duration::from_secs(30);
/// The oldest region with the API and the states that the contract names.
const OLDEST: (u32, u32) = (3, 0);
/// The oldest region whose deployed systems report their hardware.
const OLDEST_WITH_SYNC: (u32, u32) = (3, 2);

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

/// What an onboarding through MAAS will need, asked for before it changes anything. Gives a line for people.
///
/// # Errors
/// The site is disabled, the SKU unknown; the region does not answer, refuses the key, is too old, has no rack or lacks
/// the image; a secret is missing.
pub async fn maas(ctx: &Context<'_>) -> Result<String, StageError> {
    site_is_active(ctx)?;
    sku_is_known(ctx).await?;
    let site = ctx.maas_site()?;
    let path = maas::secret_path(&site.deploy_password_path)?;
    read_field(&*ctx.tools.secrets, &path, "pass").await.map_err(|missing| secret_error(&missing, ctx.now))?;
    // A key that was replaced makes another client: what was found with the one before does not count.
    let region = maas::region(ctx).await?;
    let about = format!(
        "{:p} {} {} {} {}",
        std::sync::Arc::as_ptr(&region),
        site.distro_series,
        site.policy.require_hw_sync,
        site.pxe_iface,
        site.pxe_vlan_vid
    );
    if let Some(said) = ctx.tools.sites.found_fit(ctx.site.id, &about, ctx.now, FIT_FOR) {
        return Ok(said);
    }
    let said = region_is_fit(ctx, site, region.client()).await?;
    ctx.tools.sites.keep_fit(ctx.site.id, about, ctx.now, &said);
    Ok(said)
}

/// What a boot at an OpenCHAMI site will need, asked for before anything is changed. Gives a line for people.
///
/// # Errors
/// The site is disabled, the SKU unknown; a service does not answer, or refuses the token.
pub async fn openchami(ctx: &Context<'_>) -> Result<String, StageError> {
    site_is_active(ctx)?;
    sku_is_known(ctx).await?;
    let site = ctx.openchami_site()?;
    let client = openchami::client(ctx).await?;
    // A token that was replaced makes another client: what was found with the one before does not count.
    let about = format!("{:p}", std::sync::Arc::as_ptr(&client));
    if let Some(said) = ctx.tools.sites.found_fit(ctx.site.id, &about, ctx.now, FIT_FOR) {
        return Ok(said);
    }
    let said = fit(&client, site).await.map_err(failed(ctx.now))?;
    ctx.tools.sites.keep_fit(ctx.site.id, about, ctx.now, &said);
    Ok(said)
}

/// Asks each service of a site whether it is well, and State Manager for something that needs the token.
///
/// # Errors
/// One is not, is not there, or refuses the token.
pub async fn fit(client: &OchamiClient, site: &OpenchamiSite) -> Result<String, ProviderError> {
    client.smd_ready().await?;
    // Lists are public even where a token is needed: this one is not.
    client.endpoints_at("127.0.0.1").await?;
    client.bss_ready().await?;
    let mut there = "State Manager and Boot Script Service answer".to_owned();
    if site.pcs_url.is_some() {
        client.pcs_ready().await?;
        there.push_str(", Power Control too");
    }
    Ok(there)
}

async fn sku_is_known(ctx: &Context<'_>) -> Result<(), StageError> {
    let sku = &ctx.node.sku;
    if ctx.tools.store.sku(sku).await.map_err(store_failed)?.is_some() {
        return Ok(());
    }
    let text = format!("there is no SKU {sku} any more: `lattice sku create {sku}`");
    Err(error(FailureClass::InputConfigError, "sku_unknown", text))
}

async fn region_is_fit(ctx: &Context<'_>, site: &MaasSite, client: &MaasClient) -> Result<String, StageError> {
    let lacks = |code, text| Err(error(FailureClass::SiteCapabilityMissing, code, text));
    let url = &site.api_base_url;
    let version = client.version().await.map_err(failed(ctx.now))?.version;
    let user = client.whoami().await.map_err(failed(ctx.now))?;
    if !user.is_superuser {
        let text = format!("the site's API key is {}'s, who is no administrator of {url}", user.username);
        return lacks("not_an_administrator", text);
    }
    match parsed(&version) {
        Some(known) if known < OLDEST => {
            return lacks("maas_too_old", format!("{url} is MAAS {version}; 3.0 is needed"));
        }
        Some(known) if known < OLDEST_WITH_SYNC && site.policy.require_hw_sync => {
            return lacks(
                "maas_too_old",
                format!("{url} is MAAS {version}; hardware sync, which the site requires, needs 3.2"),
            );
        }
        // A version that cannot be read is none that is known to be too old.
        Some(_) | None => {}
    }
    let racks = client.rack_controllers().await.map_err(failed(ctx.now))?;
    if racks.is_empty() {
        return lacks("no_rack_controller", format!("{url} has no rack controller: nothing boots there"));
    }
    has_image(ctx, site, client).await?;
    // Said and not refused: machines may boot from another interface than the site names.
    let note = pxe_note(&racks, &site.pxe_iface, site.pxe_vlan_vid).map(|note| format!("; {note}")).unwrap_or_default();
    Ok(format!("MAAS {version} answers, as {}{note}", user.username))
}

/// An image that is not there is said now; a region that does not say which there are says it at the deploy.
async fn has_image(ctx: &Context<'_>, site: &MaasSite, client: &MaasClient) -> Result<(), StageError> {
    let images = match client.boot_resources().await {
        Ok(images) => images,
        Err(refused) if matches!(refused.kind, ErrorKind::Forbidden { .. } | ErrorKind::NotFound { .. }) => {
            return Ok(());
        }
        Err(other) => return Err(failed(ctx.now)(other)),
    };
    let wanted = last_part(&site.distro_series);
    if images.iter().any(|image| last_part(&image.name) == wanted) {
        return Ok(());
    }
    let mut there: Vec<&str> = images.iter().map(|image| image.name.as_str()).collect();
    there.sort_unstable();
    there.dedup();
    let text = format!(
        "{} has no image `{}` (the site's distro_series); there are: {}",
        site.api_base_url,
        site.distro_series,
        there.join(", ")
    );
    Err(error(FailureClass::SiteCapabilityMissing, "image_missing", text))
}

/// `ubuntu/noble` and `noble`, `custom/x` and `x` are the same image.
fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// `3.7.3` or `3.7.0~rc1` as (3, 7).
fn parsed(version: &str) -> Option<(u32, u32)> {
    let mut numbers =
        version.split('.').map(|part| part.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_image_names_are_read_as_regions_write_them() {
        assert_eq!(parsed("3.7.3"), Some((3, 7)));
        assert_eq!(parsed("2.9.2~beta1"), Some((2, 9)));
        assert_eq!(parsed("snapshot"), None);
        assert_eq!(last_part("ubuntu/noble"), last_part("noble"));
        assert_eq!(last_part("custom/gpuaas-mi300x"), last_part("gpuaas-mi300x"));
    }
}
