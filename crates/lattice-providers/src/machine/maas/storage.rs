//! Disks and their layout.

use super::body::{BlockDevice, Machine, SystemId};
use super::call::Call;
use super::client::MaasClient;
use crate::error::ProviderError;

impl MaasClient {
    /// The machine's disks.
    ///
    /// # Errors
    /// The region cannot be read, or the machine is not there.
    pub async fn block_devices(&self, system_id: &SystemId) -> Result<Vec<BlockDevice>, ProviderError> {
        self.json(Call::get("blockdevices.list", format!("nodes/{system_id}/blockdevices/"))).await
    }

    /// Makes `disk` the one that the machine boots from.
    ///
    /// # Errors
    /// [`Refused`](crate::error::ErrorKind::Refused) unless the machine is Ready or Allocated.
    pub async fn set_boot_disk(&self, system_id: &SystemId, disk: u64) -> Result<(), ProviderError> {
        let path = format!("nodes/{system_id}/blockdevices/{disk}/");
        self.done(Call::post("blockdevices.set_boot_disk", path).op("set_boot_disk")).await
    }

    /// One partition with one file system on the boot disk.
    ///
    /// # Errors
    /// [`Refused`](crate::error::ErrorKind::Refused) unless the machine is Ready or Allocated.
    pub async fn set_flat_layout(&self, system_id: &SystemId) -> Result<Machine, ProviderError> {
        let call = Call::post("machines.set_storage_layout", format!("machines/{system_id}/"));
        self.json(call.op("set_storage_layout").field("storage_layout", "flat")).await
    }
}
