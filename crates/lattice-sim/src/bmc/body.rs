//! The resources of a simulated Redfish service.

use serde_json::{Value, json};

use super::state::{BmcFault, SimBmc};

/// The system's path.
pub(super) const SYSTEM: &str = "/redfish/v1/Systems/1";
pub(super) const RESET: &str = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";
pub(super) const TASK: &str = "/redfish/v1/TaskService/Tasks/1/Monitor";
const PROCESSORS: &str = "/redfish/v1/Systems/1/Processors";
const SECOND_PAGE: &str = "/redfish/v1/Systems/1/Processors?$skip=2";
const DRIVE: &str = "/redfish/v1/Systems/1/Storage/1/Drives/nvme0";
pub(super) const ERASE: &str = "/redfish/v1/Systems/1/Storage/1/Drives/nvme0/Actions/Drive.SecureErase";

/// The resource at `path`, if there is one.
pub(super) fn resource(bmc: &SimBmc, path: &str) -> Option<Value> {
    Some(match path.trim_end_matches('/') {
        "/redfish/v1" => json!({
            "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot", "RedfishVersion": "1.15.0", "Vendor": "Simulated",
            "Systems": link("/redfish/v1/Systems"), "Managers": link("/redfish/v1/Managers"), "Oem": { "X": [1, null] },
        }),
        "/redfish/v1/Systems" => match bmc.has(&BmcFault::LinksElsewhere) {
            true => members(&["https://elsewhere.example/redfish/v1/Systems/1"]),
            false => members(&[SYSTEM]),
        },
        SYSTEM => system(bmc),
        "/redfish/v1/Managers" => members(&["/redfish/v1/Managers/bmc"]),
        "/redfish/v1/Managers/bmc" => json!({ "Id": "bmc", "FirmwareVersion": "1.2.3" }),
        "/redfish/v1/Systems/1/Memory" => {
            members(&["/redfish/v1/Systems/1/Memory/A1", "/redfish/v1/Systems/1/Memory/A2"])
        }
        "/redfish/v1/Systems/1/Memory/A1" => {
            json!({ "Id": "A1", "Name": "DIMM A1", "Status": status(true), "Metrics": link("/redfish/v1/Systems/1/Memory/A1/Metrics") })
        }
        "/redfish/v1/Systems/1/Memory/A1/Metrics" => {
            let tripped = bmc.has(&BmcFault::UncorrectableMemory);
            json!({ "HealthData": { "AlarmTrips": { "UncorrectableECCError": tripped, "CorrectableECCError": false } } })
        }
        "/redfish/v1/Systems/1/Memory/A2" => {
            json!({ "Id": "A2", "Name": "DIMM A2", "Status": { "State": "Absent", "Health": null } })
        }
        PROCESSORS => processors(bmc, 1),
        SECOND_PAGE => processors(bmc, 2),
        "/redfish/v1/Systems/1/Processors/CPU" => {
            json!({ "Id": "CPU", "Name": "CPU", "ProcessorType": "CPU", "Status": status(true) })
        }
        "/redfish/v1/Systems/1/Processors/GPU0" => {
            let health = if bmc.has(&BmcFault::GpuWarns) { "Warning" } else { "OK" };
            json!({ "Id": "GPU0", "Name": "GPU 0", "ProcessorType": "GPU", "Status": { "State": "Enabled", "Health": health } })
        }
        "/redfish/v1/Systems/1/Processors/GPU1" => gpu(bmc),
        "/redfish/v1/Chassis/1" => json!({
            "Id": "1", "PowerSubsystem": link("/redfish/v1/Chassis/1/PowerSubsystem"),
            "Thermal": link("/redfish/v1/Chassis/1/Thermal"),
        }),
        "/redfish/v1/Chassis/1/PowerSubsystem" => {
            json!({ "PowerSupplies": link("/redfish/v1/Chassis/1/PowerSubsystem/PowerSupplies") })
        }
        "/redfish/v1/Chassis/1/PowerSubsystem/PowerSupplies" => {
            members(&["/redfish/v1/Chassis/1/PowerSubsystem/PowerSupplies/0"])
        }
        "/redfish/v1/Chassis/1/PowerSubsystem/PowerSupplies/0" => {
            json!({ "Id": "0", "Name": "PSU 0", "Status": status(!bmc.has(&BmcFault::PowerSupplyFailed)) })
        }
        "/redfish/v1/Chassis/1/Thermal" => {
            let health = if bmc.has(&BmcFault::FanSlow) { "Warning" } else { "OK" };
            json!({ "Temperatures": null, "Fans": [{ "Name": "Fan 1", "Status": { "State": "Enabled", "Health": health } }] })
        }
        "/redfish/v1/Systems/1/Storage" => members(&["/redfish/v1/Systems/1/Storage/1"]),
        "/redfish/v1/Systems/1/Storage/1" => json!({ "Drives": [link(DRIVE)] }),
        DRIVE => {
            let serial = if bmc.has(&BmcFault::DriveSwapped) { "S2" } else { "S1" };
            let erase = json!({ "#Drive.SecureErase": { "target": ERASE } });
            let actions = if bmc.has(&BmcFault::ErasesNothing) { json!({}) } else { erase };
            json!({ "Name": "nvme0", "Model": "Simulated 7.7 TB", "SerialNumber": serial, "Actions": actions })
        }
        _ => return None,
    })
}

fn system(bmc: &SimBmc) -> Value {
    bmc.settle();
    let on = bmc.is_on();
    let power = match (bmc.has(&BmcFault::SaysNonsense), bmc.has(&BmcFault::SaysOn) || on) {
        (true, _) => "Sideways",
        (false, true) => "On",
        (false, false) => "Off",
    };
    let offered: &[&str] = if bmc.has(&BmcFault::BootsFromDisk) { &["None", "Hdd"] } else { &["None", "Pxe", "Hdd"] };
    let state = bmc.state();
    let (enabled, target) = match &state.boot_once {
        Some(device) => ("Once", device.as_str()),
        None => ("Disabled", "None"),
    };
    json!({
        "@odata.id": SYSTEM, "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem", "Id": "1",
        "Manufacturer": "Simulated", "Model": "Eight GPUs", "PowerState": power, "Status": status(true),
        "Boot": {
            "BootSourceOverrideEnabled": enabled, "BootSourceOverrideTarget": target,
            "BootSourceOverrideTarget@Redfish.AllowableValues": offered,
        },
        "MemorySummary": { "Status": { "HealthRollup": null } },
        "Memory": link("/redfish/v1/Systems/1/Memory"), "Processors": link("/redfish/v1/Systems/1/Processors"),
        "Storage": link("/redfish/v1/Systems/1/Storage"), "Links": { "Chassis": [link("/redfish/v1/Chassis/1")] },
        "Actions": { "#ComputerSystem.Reset": {
            "target": RESET, "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown", "ForceRestart"],
        } },
    })
}

/// A page of the processors: the second has what the first has not, where there are two.
fn processors(bmc: &SimBmc, page: u32) -> Value {
    let [cpu, first, second] = ["CPU", "GPU0", "GPU1"].map(|name| format!("{PROCESSORS}/{name}"));
    let endless = bmc.has(&BmcFault::PagesWithoutEnd);
    let mut body = match (page, endless || bmc.has(&BmcFault::Pages)) {
        (1, false) => members(&[&cpu, &first, &second]),
        (1, true) => members(&[&cpu, &first]),
        (_, _) => members(&[&second]),
    };
    if endless || (page == 1 && bmc.has(&BmcFault::Pages)) {
        body["Members@odata.nextLink"] = json!(SECOND_PAGE);
    }
    body
}

fn gpu(bmc: &SimBmc) -> Value {
    let status = if bmc.has(&BmcFault::GpuOffBus) {
        json!({ "State": "UnavailableOffline", "Health": "Critical" })
    } else if bmc.has(&BmcFault::GpuAbsent) {
        json!({ "State": "Absent", "Health": null })
    } else {
        status(true)
    };
    json!({ "Id": "GPU1", "Name": "GPU 1", "ProcessorType": "GPU", "Status": status })
}

fn status(well: bool) -> Value {
    json!({ "State": "Enabled", "Health": if well { "OK" } else { "Critical" } })
}

fn link(path: &str) -> Value {
    json!({ "@odata.id": path })
}

fn members(paths: &[&str]) -> Value {
    let members: Vec<_> = paths.iter().map(|path| link(path)).collect();
    json!({ "Members@odata.count": members.len(), "Members": members })
}
