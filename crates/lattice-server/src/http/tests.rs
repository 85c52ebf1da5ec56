//! The API without sockets: requests go straight into the router, the store is in memory.

mod alike;
mod allocations;
mod bad_input;
mod batches;
mod bmc;
mod events;
mod fixture;
mod machines;
mod node_status;
mod notices;
mod onboardings;
mod receiver;
mod registrations;
mod reimage;
mod secure_erase;
mod silence;
mod silences;
mod site_credentials;
mod site_details;
mod standing_orders;
mod surface;
mod tokens;
mod verbs;
mod webhooks;
