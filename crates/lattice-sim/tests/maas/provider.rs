//! The MAAS client that Lattice uses, against the simulated region: over HTTP and in the same process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lattice_core::node::PowerFact;
use lattice_core::secret::Secret;
use lattice_providers::error::ProviderError;
use lattice_providers::machine::maas::body::LinkMode;
use lattice_providers::machine::maas::follow::FollowLimits;
use lattice_providers::machine::maas::lifecycle::{Commission, Deploy, Erase};
use lattice_providers::machine::maas::machines::{Creation, NewMachine, PowerSetup, Presence};
use lattice_providers::machine::maas::network::{InterfaceRef, NewLink, NewSubnet};
use lattice_providers::machine::maas::power::{PowerOn, StopMode};
use lattice_providers::machine::maas::{
    ClientSettings, HttpTransport, MaasClient, MaasObserver, MaasTransport, MachineStatus, RetryPolicy, Roots, SystemId,
};
use lattice_sim::clock::SystemClock;
use lattice_sim::maas::faults::{Fault, MachineFault, SiteFault};
use lattice_sim::maas::inline::InlineTransport;
use lattice_sim::maas::quirk::Quirk;
use lattice_sim::machine::hardware::Hardware;

use crate::site::{PATIENCE, Site, quick};

struct Region {
    site: Site,
    client: Arc<MaasClient>,
    observer: MaasObserver,
    machine: Hardware,
}

impl Region {
    async fn start(inline: bool, faults: &[MachineFault]) -> Self {
        let mut config = quick(1);
        let machine = config.population.machines[0].clone();
        for what in faults {
            config.faults.arm(Fault::Machine { name: machine.label.clone(), what: *what }, 1);
        }
        let key = Secret::new(config.admin_key.joined());
        let site = Site::start(config).await;
        let transport: Arc<dyn MaasTransport> = match inline {
            true => Arc::new(InlineTransport(site.handle.clone())),
            false => Arc::new(HttpTransport::new(&site.root(), &Roots::System).expect("a transport")),
        };
        let settings = ClientSettings {
            nonce_prefix: "the-client-of-this-test".to_owned(),
            retry: RetryPolicy { tries: 3, first_pause: Duration::ZERO },
        };
        let client = MaasClient::new(&key, settings, transport, Arc::new(SystemClock));
        let client = Arc::new(client.unwrap_or_else(|error| panic!("{error}")));
        let observer = MaasObserver::new(client.clone(), FollowLimits::default());
        Self { site, client, observer, machine }
    }

    async fn create(&self) -> SystemId {
        let bmc = &self.machine.bmc;
        let new = NewMachine {
            architecture: "amd64/generic".to_owned(),
            hostname: self.machine.label.clone(),
            macs: Vec::new(),
            power: PowerSetup::ipmi(bmc.address.to_string(), &bmc.user, Secret::new(bmc.password.clone())),
        };
        match self.client.create_or_adopt(&new).await.expect("a machine") {
            Creation::Created(machine) => machine.system_id,
            Creation::Adopted(machine) => panic!("adopted {}", machine.system_id),
        }
    }

    /// Follows the region by its events until the machine leaves `status`.
    async fn leave(&self, id: &SystemId, status: MachineStatus) -> MachineStatus {
        let begun = Instant::now();
        loop {
            self.observer.poll(std::slice::from_ref(id)).await.expect("an answer");
            match self.observer.observed(id) {
                Some(seen) if seen.machine.status != status => return seen.machine.status,
                _ => assert!(begun.elapsed() < PATIENCE, "still {status}"),
            }
            tokio::task::yield_now().await;
        }
    }

    async fn commission(&self, id: &SystemId) -> MachineStatus {
        let how = Commission { enable_ssh: true, skip_bmc_config: true, skip_testing: true };
        self.client.commission(id, how).await.expect("commissioning");
        self.leave(id, MachineStatus::Commissioning).await
    }

    async fn deploy(&self, id: &SystemId) -> Result<MachineStatus, ProviderError> {
        let what = Deploy {
            distro_series: "ubuntu/noble".to_owned(),
            user_data: Some(Secret::new("#cloud-config\n".to_owned())),
            enable_hw_sync: true,
            comment: Some("by a test".to_owned()),
        };
        self.client.deploy(id, what).await?;
        Ok(self.leave(id, MachineStatus::Deploying).await)
    }

    async fn stop(self) {
        assert_eq!(self.site.handle.report().unknown_requests, [], "the client sent nonsense");
        self.site.stop().await;
    }
}

async fn whole_life(inline: bool) {
    let region = Region::start(inline, &[]).await;
    let client = region.client.clone();
    assert_eq!(client.version().await.expect("a version").version, "3.7.3");
    assert!(client.whoami().await.expect("a user").is_superuser);
    assert_eq!(client.rack_controllers().await.expect("racks").len(), 1);
    client.set_config("hardware_sync_interval", "10m").await.expect("set");
    assert_eq!(client.config("hardware_sync_interval").await.expect("read").as_deref(), Some("10m"));

    let id = region.create().await;
    let addresses = client.power_addresses().await.expect("addresses");
    assert_eq!(addresses.get(&id), Some(&region.machine.bmc.address.to_string()));
    assert!(client.machine_token(&id).await.expect("an answer").is_none());
    assert_eq!(region.commission(&id).await, MachineStatus::Ready);
    assert!(client.machine_token(&id).await.expect("an answer").is_some());

    let disks = client.block_devices(&id).await.expect("disks");
    let boss = disks.iter().find(|disk| disk.model.contains("BOSS")).expect("a boot card");
    client.set_boot_disk(&id, boss.id).await.expect("a boot disk");
    client.set_flat_layout(&id).await.expect("a layout");
    let nics = client.interfaces(&id).await.expect("interfaces");
    let roce = nics.iter().find(|nic| nic.name == "enp28s0np0").expect("RoCE");
    let cidr = "172.30.9.60/31".parse().expect("a network");
    let subnet = client.create_subnet(&NewSubnet { cidr, name: "roce".into(), vlan: None }).await.expect("a subnet");
    let address = Some("172.30.9.61".parse().expect("an address"));
    let link = NewLink { mode: LinkMode::Static, subnet: subnet.id, address };
    let interface = InterfaceRef { machine: &id, id: roce.id };
    let linked = client.link_subnet(interface, link).await.expect("a link");
    client.unlink_subnet(interface, linked.links[0].id).await.expect("no link");
    client.link_subnet(interface, link).await.expect("a link");

    assert_eq!(region.deploy(&id).await.expect("a deployment"), MachineStatus::Deployed);
    let machine = region.observer.observed(&id).expect("it was seen").machine;
    assert_eq!(machine.ip_addresses[0].to_string(), region.machine.address.to_string());
    assert!(machine.enable_hw_sync && !machine.hardware_sync_is_healthy());
    assert_eq!(client.query_power(&id).await.expect("power"), PowerFact::On);
    client.power_off(&id, StopMode::Hard).await.expect("off");
    assert_eq!(client.ensure_on(&id).await.expect("on"), PowerOn::Started);
    client.release(&id, Erase::Quick, "by a test").await.expect("a release");
    assert_eq!(region.leave(&id, MachineStatus::Releasing).await, MachineStatus::Ready);
    client.delete(&id).await.expect("deleted");
    assert_eq!(client.presence(&id).await.expect("an answer"), Presence::Absent);
    region.stop().await;
}

#[tokio::test]
async fn a_machine_lives_its_whole_life_over_http() {
    whole_life(false).await;
}

#[tokio::test]
async fn a_machine_lives_its_whole_life_without_a_socket() {
    whole_life(true).await;
}

#[tokio::test]
async fn a_lost_answer_of_create_is_adopted_and_not_doubled() {
    let region = Region::start(false, &[]).await;
    region.site.handle.arm(Fault::Site { what: SiteFault::GatewayTimeout }, Some(1));
    let bmc = &region.machine.bmc;
    let new = NewMachine {
        architecture: "amd64/generic".to_owned(),
        hostname: region.machine.label.clone(),
        macs: vec![region.machine.nics[0].mac.clone()],
        power: PowerSetup::ipmi(bmc.address.to_string(), &bmc.user, Secret::new(bmc.password.clone())),
    };
    let found = region.client.create_or_adopt(&new).await.expect("a machine");
    assert!(matches!(found, Creation::Adopted(_)));
    let again = region.client.create_or_adopt(&new).await.expect("a machine");
    assert!(matches!(again, Creation::Adopted(_)));
    let quirks = region.site.handle.report().quirks;
    assert!(quirks.contains_key(&Quirk::GatewayTimeoutWorksOn) && quirks.contains_key(&Quirk::DuplicateMacRefused));
    region.stop().await;
}

#[tokio::test]
async fn a_datasource_failure_shows_in_the_events_and_a_second_attempt_goes_well() {
    let region = Region::start(true, &[MachineFault::DeployNoDatasource]).await;
    let id = region.create().await;
    assert_eq!(region.commission(&id).await, MachineStatus::Ready);
    assert_eq!(region.deploy(&id).await.expect("begun"), MachineStatus::FailedDeployment);
    let events = region.client.events_of(&id, 50).await.expect("events");
    assert!(events.iter().any(|event| event.description.contains("datasource")), "{events:?}");
    region.client.release(&id, Erase::Nothing, "again").await.expect("a release");
    assert_eq!(region.leave(&id, MachineStatus::Releasing).await, MachineStatus::Ready);
    assert_eq!(region.deploy(&id).await.expect("begun"), MachineStatus::Deployed);
    region.stop().await;
}

#[tokio::test]
async fn a_machine_deleted_behind_the_client_is_proven_absent() {
    let region = Region::start(true, &[MachineFault::MachineDeleted]).await;
    let id = region.create().await;
    assert_eq!(region.commission(&id).await, MachineStatus::Ready);
    let what = Deploy { distro_series: "noble".into(), user_data: None, enable_hw_sync: false, comment: None };
    region.client.deploy(&id, what).await.expect("begun");
    let begun = Instant::now();
    while region.client.presence(&id).await.expect("an answer") == Presence::Present {
        assert!(begun.elapsed() < PATIENCE, "never deleted");
        tokio::task::yield_now().await;
    }
    region.observer.poll(&[]).await.expect("an answer");
    assert!(region.observer.observed(&id).is_none());
    region.stop().await;
}
