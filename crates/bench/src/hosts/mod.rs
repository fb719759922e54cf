//! The scenarios `tcp` and `udp-gso`: what two hosts' sockets get through three nodes, with the offloads that hosts have. No
//! generator: large segments, partial checksums and GRO are made by the kernel's own stack, and what a data plane does to them is what is
//! measured.

mod contest;
mod parts;
mod row;
mod slots;
mod through;
mod transfer;

pub use contest::{Course, compare, run};
pub use row::{Engine, Row, SERVER};
pub use slots::Slots;
pub use through::Through;
pub use transfer::{Kind, Load, Rate, Transfer};
