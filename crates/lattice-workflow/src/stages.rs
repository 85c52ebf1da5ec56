//! The stages, one file each, and the one place that knows which name is which.

mod apply_roce_phase2;
mod begin_drain;
mod check_out_of_band;
mod classify_deploy_failure;
mod cleanup_secrets;
mod commission_node;
mod configure_storage;
mod create_lxd_instance;
mod create_or_find_in_maas;
mod delete_instance;
mod deploy_via_maas;
mod disable_node;
mod drain_node;
mod ensure_hardware_sync_configured;
mod ensure_pxe_interface_auto;
mod erase_drives;
mod find_component;
mod find_drives;
mod inject_bootstrap;
mod load_lxd_site_config;
mod load_openchami_site_config;
mod load_site_config;
pub(crate) mod maas;
mod open_enrollment;
pub(crate) mod openchami;
mod power_off;
mod power_on;
mod recover_for_datasource_retry;
mod release_machine;
mod remove_node_record;
mod render_cloud_init;
mod resolve_power_credentials;
mod retire_node;
mod set_boot_parameters;
mod stop_instance;
mod switch_off;
mod uninstall_agent;
mod wait_for_agent_enrollment;
mod wait_for_boot;
mod wait_for_deployed;
mod wait_for_drained;
mod wait_for_hardware_sync_healthy;
mod wait_for_network_boot;
mod wait_for_ready;
mod wait_for_running;
mod wipe;

use lattice_core::job::StageName;
use lattice_core::wipe::WipeTarget;

use crate::stage::StageRunner;

/// What runs a stage.
pub const fn stage_runner(name: StageName) -> &'static dyn StageRunner {
    match name {
        StageName::LoadSiteConfig => &load_site_config::LoadSiteConfig,
        StageName::ResolvePowerCredentials => &resolve_power_credentials::ResolvePowerCredentials,
        StageName::CreateOrFindInMaas => &create_or_find_in_maas::CreateOrFindInMaas,
        StageName::CommissionNode => &commission_node::CommissionNode,
        StageName::WaitForReady => &wait_for_ready::WaitForReady,
        StageName::ConfigureStorage => &configure_storage::ConfigureStorage,
        StageName::ApplyRocePhase2 => &apply_roce_phase2::ApplyRocePhase2,
        StageName::EnsurePxeInterfaceAuto => &ensure_pxe_interface_auto::EnsurePxeInterfaceAuto,
        StageName::RenderCloudInit => &render_cloud_init::RenderCloudInit,
        StageName::DeployViaMaas => &deploy_via_maas::DeployViaMaas,
        StageName::WaitForDeployed => &wait_for_deployed::WaitForDeployed,
        StageName::ClassifyDeployFailure => &classify_deploy_failure::ClassifyDeployFailure,
        StageName::RecoverForDatasourceRetry => &recover_for_datasource_retry::RecoverForDatasourceRetry,
        StageName::EnsureHardwareSyncConfigured => &ensure_hardware_sync_configured::EnsureHardwareSyncConfigured,
        StageName::WaitForHardwareSyncHealthy => &wait_for_hardware_sync_healthy::WaitForHardwareSyncHealthy,
        StageName::WaitForAgentEnrollment => &wait_for_agent_enrollment::WaitForAgentEnrollment,
        StageName::LoadLxdSiteConfig => &load_lxd_site_config::LoadLxdSiteConfig,
        StageName::CreateLxdInstance => &create_lxd_instance::CreateLxdInstance,
        StageName::WaitForRunning => &wait_for_running::WaitForRunning,
        StageName::InjectBootstrap => &inject_bootstrap::InjectBootstrap,
        StageName::BeginDrain => &begin_drain::BeginDrain,
        StageName::WaitForDrained => &wait_for_drained::WaitForDrained,
        StageName::DisableNode => &disable_node::DisableNode,
        StageName::DrainNode => &drain_node::DrainNode,
        StageName::RetireGpuaasNode => &retire_node::RetireNode,
        StageName::UninstallAgent => &uninstall_agent::UninstallAgent,
        StageName::StopInstance => &stop_instance::StopInstance,
        StageName::DeleteInstance => &delete_instance::DeleteInstance,
        StageName::RemoveGpuaasNodeRecord => &remove_node_record::RemoveNodeRecord,
        StageName::CleanupSecrets => &cleanup_secrets::CleanupSecrets,
        StageName::PowerOff => &power_off::PowerOff,
        StageName::PowerOn => &power_on::PowerOn,
        StageName::WaitForBoot => &wait_for_boot::WaitForBoot,
        StageName::LoadOpenchamiSiteConfig => &load_openchami_site_config::LoadOpenchamiSiteConfig,
        StageName::FindComponent => &find_component::FindComponent,
        StageName::SetBootParameters => &set_boot_parameters::SetBootParameters,
        StageName::OpenEnrollment => &open_enrollment::OpenEnrollment,
        StageName::WaitForNetworkBoot => &wait_for_network_boot::WaitForNetworkBoot,
        StageName::ReleaseMachine => &release_machine::ReleaseMachine,
        StageName::CheckOutOfBand => &check_out_of_band::CheckOutOfBand,
        StageName::PrepareWipe => &wipe::PrepareWipe,
        StageName::ClearGpuMemory => &wipe::EraseDevices(WipeTarget::GpuMemory),
        StageName::EraseNvme => &wipe::EraseDevices(WipeTarget::NvmeDrive),
        StageName::ScrubMemory => &wipe::EraseDevices(WipeTarget::MainMemory),
        StageName::RebootHost => &wipe::RebootHost,
        StageName::ConfirmWipe => &wipe::ConfirmWipe,
        StageName::FindDrives => &find_drives::FindDrives,
        StageName::SwitchOff => &switch_off::SwitchOff,
        StageName::EraseDrives => &erase_drives::EraseDrives,
    }
}
