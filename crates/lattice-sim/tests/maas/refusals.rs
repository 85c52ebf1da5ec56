//! What a client must not send.
