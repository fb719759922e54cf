//! Functions in virtual machines, or whatever else is at the other end of two network devices: TAP devices that the agent makes, or devices
//! that whoever runs the machine has made. What is inside the machine is its own: it gets gateways that answer on both links.

use std::net::IpAddr;

use segue_host::link::LinkSocket;
use segue_host::tap::Tap;
use segue_model::node::{Vm, VmLink};
use segue_model::wiring::Wiring;

use super::{ALIAS, GATEWAYS, of_machine};
use crate::kernel::KernelError;
use crate::netfilter::{PROBE_FROM, PROBE_TO, quiet, taken};

/// How the node's end came to be, at the end of its alias.
const TAP: &str = "tap";
const DEVICE: &str = "device";

/// One of the two.
struct Side<'a> {
    link: &'a VmLink,
    name: &'a str,
    alias: String,
    /// For probes, and those that the machine has as gateways.
    addresses: Vec<IpAddr>,
}

fn sides<'a>(wiring: &'a Wiring, vm: &'a Vm) -> [Side<'a>; 2] {
    let side = |link: &'a VmLink, name: &'a str, own: &[IpAddr]| Side {
        link,
        name,
        alias: of_machine(wiring, if link.interface.is_some() { DEVICE } else { TAP }),
        // The first one of a family is where probes start and arrive.
        addresses: own.iter().chain(GATEWAYS.iter().filter(|gateway| !own.contains(gateway))).copied().collect(),
    };
    [side(&vm.west, &wiring.node_west, &PROBE_FROM), side(&vm.east, &wiring.node_east, &PROBE_TO)]
}

/// Names and aliases of the node's ends.
pub fn links(wiring: &Wiring, vm: &Vm) -> [(String, String); 2] {
    sides(wiring, vm).map(|side| (side.name.to_owned(), side.alias))
}

/// Whether an alias is that of a device which somebody else has made.
pub fn is_device(alias: &str) -> bool {
    alias.starts_with(ALIAS) && alias.ends_with(&format!(" vm {DEVICE}"))
}

/// Makes TAP devices, and gives the devices that are there what they need. Returns whether the node has got other interfaces.
pub fn make(sockets: &mut LinkSocket, wiring: &Wiring, vm: &Vm, mtu: u32) -> Result<bool, KernelError> {
    let mut changed = false;
    for Side { link, name, alias, addresses } in sides(wiring, vm) {
        let found = sockets.find(name)?;
        match (&link.interface, found) {
            // Not yet.
            (Some(_), None) => continue,
            (Some(_), Some(there)) if there.alias == alias => {}
            (Some(_), Some(there)) if there.alias.is_empty() => {
                sockets.alias(name, &alias)?;
                sockets.settle(name, None, 0)?;
                changed = true;
            }
            (Some(_), Some(there)) => return Err(in_use(name, &there.alias)),
            (None, Some(there)) if there.alias == alias => sockets.settle(name, Some(&alias), mtu)?,
            (None, Some(there)) if !there.alias.starts_with(ALIAS) => {
                return Err(taken(
                    name,
                    "give the function another name, or name the device as `interface:` of its link",
                ));
            }
            (None, there) => {
                if there.is_some() {
                    super::undo(&there.map(|there| there.alias).unwrap_or_default())?;
                    sockets.delete(name)?;
                }
                Tap::make(name)?;
                quiet(name)?;
                sockets.settle(name, Some(&alias), mtu)?;
                changed = true;
            }
        }
        addresses.into_iter().try_for_each(|address| sockets.quiet_address(name, address))?;
    }
    Ok(changed)
}

/// Whether a device is there that has not been given what it needs, or one is missing.
pub fn has_come(wiring: &Wiring, vm: &Vm) -> Result<bool, KernelError> {
    let mut sockets = LinkSocket::open()?;
    for side in sides(wiring, vm) {
        match (&side.link.interface, sockets.find(side.name)?) {
            (Some(_), Some(there)) if there.alias.is_empty() => return Ok(true),
            (None, None) => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}

/// Takes from somebody else's device what the agent has given it.
pub fn release(sockets: &mut LinkSocket, name: &str) -> Result<(), KernelError> {
    let given = PROBE_FROM.iter().chain(&PROBE_TO).chain(&GATEWAYS);
    given.copied().try_for_each(|address| sockets.without_address(name, address))?;
    Ok(sockets.alias(name, "")?)
}

fn in_use(name: &str, alias: &str) -> KernelError {
    KernelError {
        action: format!("interface {name}"),
        errno: None,
        cause: format!("it has the alias {alias:?}: something else uses it"),
        remedy: format!("name another device, or take the alias away: ip link set {name} alias ''"),
    }
}
