//! Each rule is seen to fire.
