//! A simulated OpenCHAMI system over its real protocols: State Manager, Boot Script Service, Power Control. Contract:
//! openchami. `tests/ochami` holds what it answers against real services.

mod bss;
mod http;
mod node;
mod pcs;
mod smd;

pub use bss::SimBss;
pub use http::serve;
pub use node::SimNode;
pub use pcs::{PcsFault, SimPcs};
pub use smd::{SimSmd, SmdFault};

use std::sync::Arc;

use lattice_core::time::Clock;
use tokio::net::TcpListener;

use crate::stop::Stop;

/// All three services on loopback, until dropped.
pub struct SimOpenchami {
    /// State Manager.
    pub smd: Arc<SimSmd>,
    /// Boot Script Service.
    pub bss: Arc<SimBss>,
    /// Power Control.
    pub pcs: Arc<SimPcs>,
    /// Their addresses: State Manager, Boot Script Service, Power Control.
    pub urls: [String; 3],
    _running: [Stop; 3],
}

impl SimOpenchami {
    /// Starts the services, with these nodes in Power Control; `token` is what they ask for.
    ///
    /// # Errors
    /// Nothing can listen on loopback.
    pub async fn start(nodes: &[&str], clock: Arc<dyn Clock>, token: Option<&str>) -> std::io::Result<Self> {
        let smd = SimSmd::new(token);
        let bss = SimBss::new(Arc::clone(&smd), Arc::clone(&clock));
        let pcs = SimPcs::new(nodes, clock);
        let (smd_at, bss_at, pcs_at) = (listen().await?, listen().await?, listen().await?);
        let urls = [&smd_at, &bss_at, &pcs_at].map(|at| at.local_addr().map(|at| format!("http://{at}")));
        let [one, two, three] = urls;
        Ok(Self {
            urls: [one?, two?, three?],
            _running: [
                serve(smd_at, Arc::clone(&smd) as _),
                serve(bss_at, Arc::clone(&bss) as _),
                serve(pcs_at, Arc::clone(&pcs) as _),
            ],
            smd,
            bss,
            pcs,
        })
    }
}

async fn listen() -> std::io::Result<TcpListener> {
    TcpListener::bind("127.0.0.1:0").await
}
