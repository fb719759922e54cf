//! Every service, with the driver.

mod compression;
mod corpus;
mod forward;
mod list;
mod tcp_bulk;
