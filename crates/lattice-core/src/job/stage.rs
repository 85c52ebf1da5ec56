//! Names of the stages. spec: S2 4.2, 5.2; S5 4.3, 10

use serde::{Deserialize, Serialize};

/// Name of a stage, as stored, shown and measured. Which flow has which stages in which order is in
/// [`flows`](super::flows).
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StageName {
    /// Read the site and its secrets; the MAAS region answers.
    LoadSiteConfig,
    /// Find the BMC login: overrides first, then the site's default.
    ResolvePowerCredentials,
    /// Find the machine in MAAS, or create it, or discover it by PXE.
    CreateOrFindInMaas,
    /// Have MAAS commission it.
    CommissionNode,
    /// Until MAAS says Ready.
    WaitForReady,
    /// Boot disk and storage layout.
    ConfigureStorage,
    /// Static RoCE addresses.
    ApplyRocePhase2,
    /// The PXE interface gets its address automatically.
    EnsurePxeInterfaceAuto,
    /// Enrolment token and first-boot payload.
    RenderCloudInit,
    /// Ask MAAS to deploy.
    DeployViaMaas,
    /// Until MAAS says Deployed.
    WaitForDeployed,
    /// Why the deployment failed.
    ClassifyDeployFailure,
    /// Release the machine, so that it can be deployed again.
    RecoverForDatasourceRetry,
    /// Seed MAAS's hardware sync on the host.
    EnsureHardwareSyncConfigured,
    /// Until MAAS receives it.
    WaitForHardwareSyncHealthy,
    /// Until the agent enrolled and its health check passed.
    WaitForAgentEnrollment,
    /// Read the LXD site and its certificates; the server answers.
    LoadLxdSiteConfig,
    /// Create and start the instance.
    CreateLxdInstance,
    /// Until it runs.
    WaitForRunning,
    /// Put token and agent into it.
    InjectBootstrap,
    /// Ask for the drain.
    BeginDrain,
    /// Until the last allocation is gone.
    WaitForDrained,
    /// Take it out of scheduling.
    DisableNode,
    /// Drain it, wait until it is empty.
    DrainNode,
    /// Take it out of the fleet, keep its identity.
    RetireGpuaasNode,
    /// The agent removes itself.
    UninstallAgent,
    /// Stop the instance.
    StopInstance,
    /// Delete the instance.
    DeleteInstance,
    /// End its identity; certificates are revoked.
    RemoveGpuaasNodeRecord,
    /// Delete its secrets and tokens.
    CleanupSecrets,
    /// Switch the machine off, until its power is seen to be off.
    PowerOff,
    /// Switch it on, until its power is seen to be on.
    PowerOn,
    /// Until its agent registered and its health check passed.
    WaitForBoot,
    /// Read the OpenCHAMI site; its services answer.
    LoadOpenchamiSiteConfig,
    /// Find the component in State Manager, and the interface that it boots from.
    FindComponent,
    /// Set what it boots.
    SetBootParameters,
    /// A fresh enrolment token, for whom boots at the machine's address.
    OpenEnrollment,
    /// Until the machine asked for its boot script.
    WaitForNetworkBoot,
    /// Release the node's machine in MAAS, until it is Ready.
    ReleaseMachine,
    /// Ask the BMC for power and health.
    CheckOutOfBand,
    /// Empty the node, until nothing runs on it.
    PrepareWipe,
    /// Clear the memory of its GPUs.
    ClearGpuMemory,
    /// Erase its NVMe drives.
    EraseNvme,
    /// Overwrite its main memory.
    ScrubMemory,
    /// Have its agent restart it.
    RebootHost,
    /// See that it booted anew, certify the wipe, give it back.
    ConfirmWipe,
    /// Find the drives that its BMC is to erase.
    FindDrives,
    /// Switch the machine off and leave it off; or see that nothing runs on it.
    SwitchOff,
    /// Have the BMC erase its drives, one after the other.
    EraseDrives,
}
