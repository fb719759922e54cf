//! The kernel's routes for SIDs, for reports: there may be 100,000, so they are read again only if the kernel has told of a change.

use std::{io, sync::Arc};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use segue_host::sysctl;

use super::{Kernel, KernelError, LinuxKernel, SidRoute, route};

/// RTNLGRP_IPV6_ROUTE.
const ROUTES: u32 = 11;
/// What is 1 where routes go with their device without a notification.
const SILENT: &str = "net/ipv6/route/skip_notify_on_dev_down";

/// Those of the network namespace in which it was opened.
pub struct OwnRoutes {
    changes: Socket,
    kernel: LinuxKernel,
    known: Option<Arc<[SidRoute]>>,
}

impl OwnRoutes {
    /// # Errors
    /// Sockets that cannot be opened.
    pub fn open() -> Result<Self, KernelError> {
        let changes = subscribe().map_err(|error| KernelError {
            action: "subscribe to changes of routes".to_owned(),
            errno: error.raw_os_error(),
            cause: error.to_string(),
            remedy: "run segued with CAP_NET_ADMIN in its network namespace".to_owned(),
        })?;
        Ok(Self { changes, kernel: LinuxKernel::open()?, known: None })
    }

    /// All of them as they are now, by prefix.
    ///
    /// # Errors
    /// Routes that cannot be listed.
    pub fn read(&mut self) -> Result<Arc<[SidRoute]>, KernelError> {
        // Before they are listed: what changes while that goes on is for the next time.
        let changed = self.changed();
        let told = sysctl::get(SILENT)?.is_none_or(|value| value == "0");
        if let Some(known) = self.known.take().filter(|_| !changed && told) {
            return Ok(Arc::clone(self.known.insert(known)));
        }
        let mut routes = self.kernel.own_routes()?;
        routes.sort_unstable_by_key(|route| route.prefix);
        Ok(Arc::clone(self.known.insert(routes.into())))
    }

    fn changed(&self) -> bool {
        let mut changed = false;
        loop {
            match self.changes.recv_from_full() {
                // A notification each.
                Ok((message, _)) => changed |= route::is_own(&message),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return changed,
                // More came than fits.
                Err(_) => return true,
            }
        }
    }
}

fn subscribe() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind(&SocketAddr::new(0, 0))?;
    socket.add_membership(ROUTES)?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}
