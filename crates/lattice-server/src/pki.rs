//! Identities of nodes and of the agent listener: the embedded certificate authority.
//!
//! Times and serials are arguments. Private keys are drawn from the operating system's entropy by the TLS library.

mod authority;
mod identity;

pub use authority::{Authority, CaMaterial, CertificateSpan, NodeRequest, PkiError, ServerIdentity, SignedNode};
pub use identity::{IdentityError, NodeIdentity};
