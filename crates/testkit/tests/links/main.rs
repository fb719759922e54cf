//! Segue between real links, functions and tenants; single programs of the data plane; and the kit itself.

mod answers;
mod aware;
mod classifier;
mod cut;
mod differential;
mod netns;
mod offload;
mod sid;
mod tenants;
mod told;
