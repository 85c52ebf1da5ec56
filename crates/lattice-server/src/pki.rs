//! Identities of nodes and of the agent listener: the embedded certificate authority and the key that signs tasks.
//!
//! Times and serials are arguments. Private keys are drawn from the operating system's entropy by the TLS library.

mod authority;
mod identity;
mod task_signer;

pub use authority::{Authority, CaMaterial, CertificateSpan, NodeRequest, PkiError, ServerIdentity, SignedNode};
pub use identity::{IdentityError, NodeIdentity};
pub use task_signer::TaskSigner;
