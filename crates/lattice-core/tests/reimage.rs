//! A reimage as it is asked for: where it can be done, with which settings, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

#[allow(dead_code, reason = "shared with other tests")]
mod fleet;

use fleet::{Counter, NOW, node, request, site};
use lattice_core::change::Change;
use lattice_core::command::Refused;
use lattice_core::command::node::{Image, Known, reimage};
use lattice_core::ids::{ProfileId, uuid_v7};
use lattice_core::job::{JobInput, JobKind, StageName, flow_for};
use lattice_core::node::machine::Health;
use lattice_core::node::{Availability, HoldKind, Node, Status};
use lattice_core::site::{Site, SiteProfile, SiteProvider, SiteStatus};
use serde_json::json;

fn maas() -> Site {
    let provider = json!({"kind": "maas", "api_base_url": "http://m/MAAS", "api_token_path": "t",
        "default_power_creds_path": "default", "deploy_password_path": "d", "pxe_iface": "ens19", "pxe_vlan_vid": 46,
        "node_pxe_iface": "eno8303"});
    Site { provider: serde_json::from_value(provider).unwrap(), ..site() }
}

fn profile(status: &str) -> SiteProfile {
    let profile = json!({"id": ProfileId::new(uuid_v7(NOW, [3; 10])), "site": site().id, "name": "strict",
        "description": "", "status": status, "settings": {"distro_series": "custom/gpuaas"}, "created_at": NOW,
        "updated_at": NOW, "generation": 1});
    serde_json::from_value(profile).unwrap()
}

fn known<'a>(node: &'a Node, site: &'a Site) -> Known<'a> {
    Known { node, job: None, health: Health::NotReported, live_allocations: 0, site, placed: &[], has_bmc: false }
}

#[test]
fn a_reimage_through_maas_keeps_the_settings_of_its_profile_and_holds_the_node_until_it_is_over() {
    let (ids, site) = (Counter::default(), maas());
    let node = node(Status::Active, Availability::Drained);
    let strict = profile("active");
    let image = Image { name: Some("strict"), profile: Some(&strict) };
    let planned = reimage(&known(&node, &site), &request(&ids), image).unwrap();
    let job = planned.commit.changes.iter().find_map(|change| match change {
        Change::Job(change) => Some(change.after.clone()),
        _ => None,
    });
    let job = job.unwrap();
    let JobInput::ReimageMaas { settings } = &job.input else { panic!("{:?}", job.input) };
    assert_eq!((settings.profile.as_deref(), settings.distro_series.as_str()), (Some("strict"), "custom/gpuaas"));
    assert_eq!((job.kind, job.state.stage), (JobKind::Reimage, StageName::LoadSiteConfig));
    let stages: Vec<StageName> = flow_for(&job.input, &site).stages.iter().map(|stage| stage.name).collect();
    assert_eq!(stages[1], StageName::ReleaseMachine);
    assert!(stages.contains(&StageName::WaitForHardwareSyncHealthy), "after every reimage: S5 9.1");
    assert_eq!(stages.last(), Some(&StageName::WaitForAgentEnrollment));
    let held = planned.commit.changes.iter().find_map(|change| match change {
        Change::Node(change) => Some(change.after.clone()),
        _ => None,
    });
    let held = held.unwrap();
    assert_eq!(held.hold(HoldKind::Maintenance).and_then(|hold| hold.job), Some(job.id));
    assert_eq!(held.state, node.state, "the job moves it, where its OS goes");
}

#[test]
fn a_reimage_is_refused_while_something_runs_with_a_disabled_profile_and_where_nothing_can_do_it() {
    let (ids, site) = (Counter::default(), maas());
    let drained = node(Status::Active, Availability::Drained);
    let ready = node(Status::Active, Availability::Ready);
    let refused = |known: &Known, image| reimage(known, &request(&ids), image).unwrap_err();
    assert!(refused(&known(&ready, &site), Image::default()).to_string().contains("drain"));
    let busy = Known { live_allocations: 2, ..known(&drained, &site) };
    assert!(refused(&busy, Image::default()).to_string().contains("2 allocations"));
    let off = profile("disabled");
    let image = Image { name: Some("strict"), profile: Some(&off) };
    assert!(matches!(refused(&known(&drained, &site), image), Refused::ProfileDisabled { .. }));
    let by_hand = Site { provider: SiteProvider::Manual, status: SiteStatus::Active, ..maas() };
    assert!(matches!(refused(&known(&drained, &by_hand), Image::default()), Refused::WrongSiteKind { .. }));
}
