//! BMCs that State Manager has, for nodes that have none or got theirs in this way. What an operator set stands.
//!
//! State Manager shows logins in clear: they go from its answer to the secret store, and nowhere else.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use lattice_core::bmc::{Bmc, BmcEndpoint, BmcTls, BmcWay};
use lattice_core::change::{Change, Commit, Outcome};
use lattice_core::command::{Request, bmc as commands};
use lattice_core::component::ComponentReport;
use lattice_core::ids::{CorrelationId, LeaseEpoch};
use lattice_core::node::Node;
use lattice_core::secret::constant_time_eq;
use lattice_core::site::Site;
use lattice_providers::machine::openchami::{EndpointLogin, OchamiClient, Xname};
use lattice_providers::secret::{SecretError, SecretObject, SecretPath};
use lattice_store::StoreError;
use tracing::info;

use super::guard;
use super::round::Member;
use crate::tools::Tools;

/// Who sets these BMCs. No token can have a name with a space, so no operator is taken for it.
pub const IMPORTER: &str = "state manager";

/// The import at one site.
pub(super) struct Import<'a> {
    pub(super) tools: &'a Tools,
    pub(super) site: &'a Site,
    pub(super) smd: &'a OchamiClient,
    pub(super) lease: LeaseEpoch,
}

/// What State Manager has of all BMCs.
struct Known {
    logins: BTreeMap<Xname, EndpointLogin>,
    systems: BTreeMap<Xname, String>,
}

impl Import<'_> {
    /// Gives nodes their BMCs, and counts them in `taken`.
    ///
    /// # Errors
    /// Ours: our own store fails. In words: State Manager, or the secret store; the next whole round tries again.
    pub(super) async fn run(&self, members: Vec<Member>, taken: &mut u64) -> Result<Result<(), String>, StoreError> {
        let known = match self.known().await {
            Ok(known) => known,
            Err(why) => return Ok(Err(why)),
        };
        for member in members {
            let earlier = self.tools.store.bmc(member.node.id).await?;
            let is_operators = earlier.as_ref().is_some_and(|bmc| bmc.set_by != IMPORTER);
            let login = bmc_of(&member.xname).and_then(|bmc| known.logins.get(&bmc));
            let Some(login) = login.filter(|_| !is_operators) else {
                self.keep_problem(&member.report, None).await?;
                continue;
            };
            let endpoint = match self.endpoint(&member.node, login, known.systems.get(&member.xname)) {
                Ok(endpoint) => endpoint,
                Err(problem) => {
                    self.keep_problem(&member.report, Some(problem)).await?;
                    continue;
                }
            };
            self.keep_problem(&member.report, None).await?;
            match self.take(&member.node, earlier, endpoint, login).await? {
                Ok(is_new) => *taken += u64::from(is_new),
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
        Ok(Ok(()))
    }

    async fn known(&self) -> Result<Known, String> {
        let logins = self.smd.endpoint_logins().await.map_err(|error| error.to_string())?;
        let systems = self.smd.systems().await.map_err(|error| error.to_string())?;
        Ok(Known { logins: logins.into_iter().map(|one| (one.endpoint.id.clone(), one)).collect(), systems })
    }

    /// How the BMC is talked to, as far as the site lets it be.
    fn endpoint(&self, node: &Node, login: &EndpointLogin, system: Option<&String>) -> Result<BmcEndpoint, String> {
        let name = login.endpoint.id.as_str();
        let Some((address, port)) = address(login) else {
            return Err(format!("State Manager has no IP address of {name}: names are not called; add it there"));
        };
        if login.user.is_empty() || login.password.expose().is_empty() {
            return Err(format!("State Manager keeps no login for {name}: set one there, or set the node's BMC here"));
        }
        // What a BMC must prove is never taken from State Manager.
        let tls = match address.to_canonical().is_loopback() && self.site.bmc.authority_pem.is_none() {
            true => BmcTls::Plain,
            false => BmcTls::SiteAuthority,
        };
        let way = BmcWay::Redfish { tls, system: system.cloned() };
        let credential_path = format!("kv/nodes/{}/bmc-of-state-manager", node.id);
        let endpoint = BmcEndpoint { address, port, way, credential_path };
        endpoint.check(&self.site.bmc).map_err(|problem| format!("the BMC {name} is not used: {problem}"))?;
        Ok(endpoint)
    }

    /// Sets the BMC where it is not so already; whether it was not. The login is kept before the row says so.
    async fn take(
        &self,
        node: &Node,
        earlier: Option<Bmc>,
        endpoint: BmcEndpoint,
        login: &EndpointLogin,
    ) -> Result<Result<bool, SecretError>, StoreError> {
        let path: SecretPath = endpoint.credential_path.parse().expect("an id is letters, digits and hyphens");
        let is_kept = match self.tools.secrets.read(&path).await {
            Ok(kept) => is_login(&kept, login),
            Err(SecretError::NotFound { .. }) => false,
            Err(error) => return Ok(Err(error)),
        };
        if is_kept && earlier.as_ref().is_some_and(|bmc| bmc.endpoint == endpoint) {
            return Ok(Ok(false));
        }
        if !is_kept && let Err(error) = self.tools.secrets.write(&path, object(login)).await {
            return Ok(Err(error));
        }
        let now = self.tools.clock.now();
        let correlation = CorrelationId::generate(&*self.tools.ids, now);
        let request = Request::of_system(IMPORTER, &*self.tools.ids, now, correlation);
        let Ok(commit) = commands::set(&request, node, self.site, earlier.as_ref(), endpoint) else {
            return Ok(Ok(false));
        };
        // Whoever changed the node, its BMC or the site meanwhile was first: the next round sees what stands then.
        let is_set = matches!(self.tools.store.commit_one(self.guarded(commit)).await?, Outcome::Applied { .. });
        if is_set {
            info!(node_id = %node.id, site_id = %self.site.id, "bmc taken over from state manager");
        }
        Ok(Ok(is_set))
    }

    async fn keep_problem(&self, report: &ComponentReport, problem: Option<String>) -> Result<(), StoreError> {
        if report.bmc_problem == problem {
            return Ok(());
        }
        let after = ComponentReport { bmc_problem: problem, ..report.clone() };
        let request = super::request(self.tools, self.tools.clock.now());
        let commit = request.commit(Vec::new(), vec![Change::ComponentReport(Box::new(after))]);
        self.tools.store.commit_one(self.guarded(commit)).await.map(drop)
    }

    fn guarded(&self, mut commit: Commit) -> Commit {
        commit.guards.extend(guard(self.lease));
        commit
    }
}

/// The BMC of a node by its place: `x1000c0s1b0` of `x1000c0s1b0n0`.
fn bmc_of(node: &Xname) -> Option<Xname> {
    let (bmc, place) = node.as_str().rsplit_once('n')?;
    let is_place = !place.is_empty() && place.bytes().all(|b| b.is_ascii_digit());
    is_place.then(|| Xname::parse(bmc).ok()).flatten()
}

/// Its address, and its port where State Manager has one.
fn address(login: &EndpointLogin) -> Option<(IpAddr, Option<u16>)> {
    [&login.endpoint.ip_address, &login.endpoint.fqdn].into_iter().find_map(|text| {
        let with_port = || text.parse::<SocketAddr>().ok().map(|socket| (socket.ip(), Some(socket.port())));
        text.parse().ok().map(|address: IpAddr| (address, None)).or_else(with_port)
    })
}

fn object(login: &EndpointLogin) -> SecretObject {
    let user = lattice_core::secret::Secret::new(login.user.clone());
    SecretObject::from([("user".to_owned(), user), ("pass".to_owned(), login.password.clone())])
}

fn is_login(kept: &SecretObject, login: &EndpointLogin) -> bool {
    let is = |name: &str, value: &str| {
        kept.get(name).is_some_and(|kept| constant_time_eq(kept.expose().as_bytes(), value.as_bytes()))
    };
    is("user", &login.user) && is("pass", login.password.expose())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bmc_of_a_node_is_named_by_its_place() {
        for (node, bmc) in [("x1000c0s1b0n0", Some("x1000c0s1b0")), ("x1c0s0b1n12", Some("x1c0s0b1")), ("x1n", None)] {
            let found = bmc_of(&Xname::parse(node).unwrap());
            assert_eq!(found.as_ref().map(Xname::as_str), bmc, "{node}");
        }
    }
}
