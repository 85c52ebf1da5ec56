//! The subscription to State Manager's notices: one for each site that has nodes and says where notices go. It is found
//! again by its subscriber's name, so neither a restart nor an answer that was lost doubles it.

use lattice_core::site::{OpenchamiSite, Site};
use lattice_providers::machine::openchami::{OchamiClient, State};
use lattice_providers::message;

use super::notices;
use crate::tools::Tools;

/// Every state: what becomes of a component is read, not believed.
const STATES: [State; 8] =
    [State::Empty, State::Populated, State::Off, State::On, State::Standby, State::Halt, State::Ready, State::Unknown];

/// Makes the subscriptions of this site what they should be: one to its address, or none. `is_used`: it has nodes. A site
/// that had nodes is never removed, so no subscription outlives its site. True: one was made, and what changed before it
/// was told to nobody.
///
/// # Errors
/// In words, and without the address: it is secret.
pub(super) async fn keep(
    tools: &Tools,
    site: &Site,
    settings: &OpenchamiSite,
    smd: &OchamiClient,
    is_used: bool,
) -> Result<bool, String> {
    let subscriber = format!("lattice@{}", site.id);
    let known = smd.subscriptions().await.map_err(|error| error.to_string())?;
    let ours: Vec<_> = known.into_iter().filter(|one| one.subscriber == subscriber).collect();
    let base = settings.notices_url.as_ref().filter(|_| is_used);
    let wanted = match base {
        Some(base) => {
            let random = tools.entropy.bytes32();
            let key = notices::key(&*tools.secrets, site.id, random).await.map_err(|error| error.to_string())?;
            let url = format!("{}/api/v1/notices/openchami/{}/{}", base.trim_end_matches('/'), site.id, key.expose());
            Some((key, url))
        }
        None => None,
    };
    let kept = ours.iter().find(|one| wanted.as_ref().is_some_and(|(_, url)| *url == one.url)).map(|one| one.id);
    for other in ours.iter().filter(|one| Some(one.id) != kept) {
        smd.unsubscribe(other.id).await.map_err(|error| error.to_string())?;
    }
    if let (None, Some((key, url))) = (kept, &wanted) {
        let made = smd.subscribe(&subscriber, &STATES, url).await;
        made.map_err(|error| message::without_secrets(error.to_string(), &[key.expose()]))?;
        return Ok(true);
    }
    Ok(false)
}
