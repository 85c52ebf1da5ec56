//! What the control plane and the agent of a node agree on beyond the shapes of their messages.

pub mod task;
