//! Every service, with the driver.

mod bulk;
mod compression;
mod corpus;
mod forward;
mod list;
mod tcp_bulk;
