//! VLANs of ports (`vlan: {on: DEVICE, id: N}`): sub-interfaces that the agent makes on the device, makes again when they have gone, and removes
//! when no port has them any more. The alias says which ones are the agent's; one that somebody else has made, on the same device and with the
//! same number, is taken as it is and stays.

use segue_dataplane::Interfaces;
use segue_host::link::{Link, LinkSocket, Tag};
use segue_model::node::{NodeState, Port, Vlan};

use crate::kernel::KernelError;
use crate::problem::Problem;

/// Of links that were made here.
const ALIAS: &str = "segue vlan";

/// The ports that are VLANs.
fn wanted(state: &NodeState) -> impl Iterator<Item = (&Port, &Vlan)> {
    state.ports.iter().filter_map(|port| Some((port, port.vlan.as_ref()?)))
}

/// What a link has to be.
fn tag(links: &mut LinkSocket, vlan: &Vlan) -> Result<Option<Tag>, KernelError> {
    Ok(links.find(&vlan.on)?.map(|lower| Tag { lower: lower.index(), id: vlan.id }))
}

/// Makes what is not there and can be: a device that is missing brings its VLANs when it comes. Returns whether the node has got other
/// interfaces.
///
/// # Errors
/// What the kernel refused; an interface of that name that is something else.
pub fn make(state: &NodeState) -> Result<bool, KernelError> {
    if wanted(state).next().is_none() {
        return Ok(false);
    }
    let mut links = LinkSocket::open()?;
    let mut changed = false;
    for (port, vlan) in wanted(state) {
        let Some(tag) = tag(&mut links, vlan)? else { continue };
        match links.find(&port.name)? {
            Some(link) if link.tag() == Some(tag) => {}
            Some(link) if link.alias == ALIAS => {
                links.delete(&port.name)?;
                add(&mut links, port, tag)?;
                changed = true;
            }
            Some(_) => return Err(taken(port, vlan)),
            None => {
                add(&mut links, port, tag)?;
                changed = true;
            }
        }
        changed |= up(&mut links, port)?;
    }
    Ok(changed)
}

fn add(links: &mut LinkSocket, port: &Port, tag: Tag) -> Result<(), KernelError> {
    tracing::info!(port = port.name, id = tag.id, "its VLAN is made");
    links.add_vlan(&port.name, ALIAS, tag).map_err(|error| {
        let error = KernelError::from(error);
        if error.errno == Some(nix::libc::EOPNOTSUPP) {
            let remedy = format!(
                "load the module 8021q, or use a kernel with CONFIG_VLAN_8021Q; or make {} in another way and leave `vlan` out",
                port.name
            );
            return KernelError { cause: "this kernel has no VLANs".to_owned(), remedy, ..error };
        }
        error
    })
}

/// On a device that is down a VLAN stays down; the kernel brings both up together.
fn up(links: &mut LinkSocket, port: &Port) -> Result<bool, KernelError> {
    let is_up = |link: Option<Link>| link.is_some_and(|link| link.is_up());
    if is_up(links.find(&port.name)?) {
        return Ok(false);
    }
    match links.settle(&port.name, None, 0).map_err(KernelError::from) {
        Err(error) if error.errno == Some(nix::libc::ENETDOWN) => Ok(false),
        Err(error) => Err(error),
        Ok(()) => Ok(true),
    }
}

fn taken(port: &Port, vlan: &Vlan) -> KernelError {
    KernelError {
        action: format!("make VLAN {} on {}", vlan.id, vlan.on),
        errno: Some(nix::libc::EEXIST),
        cause: format!("there is an interface {} already, which is something else", port.name),
        remedy: "give the port another name, or remove the interface".to_owned(),
    }
}

/// Removes what was made for VLANs that `state` does not have; all without a state.
///
/// # Errors
/// What the kernel refused.
pub fn remove(state: Option<&NodeState>) -> Result<(), KernelError> {
    let mut links = LinkSocket::open()?;
    for link in links.all()?.into_iter().filter(|link| link.alias == ALIAS) {
        let mut ports = state.into_iter().flat_map(wanted);
        let keep = match ports.find(|(port, _)| port.name == link.name) {
            Some((_, vlan)) => link.tag().is_some() && link.tag() == tag(&mut links, vlan)?,
            None => false,
        };
        if !keep {
            links.delete(&link.name)?;
        }
    }
    Ok(())
}

/// The interfaces that there will be once [`make`] has made what `state` needs: for checks that change nothing. A VLAN begins with what
/// its device has.
pub fn pretend(state: &NodeState, interfaces: &mut Interfaces) {
    let mut ifindex = interfaces.0.values().map(|interface| interface.ifindex).max().unwrap_or(0);
    for (port, vlan) in wanted(state) {
        if interfaces.get(&port.name).is_some() {
            continue;
        }
        let Some(mut made) = interfaces.get(&vlan.on).cloned() else { continue };
        ifindex += 1;
        made.ifindex = ifindex;
        made.addresses.clear();
        made.hook = segue_dataplane::Hook::Skb;
        interfaces.0.insert(port.name.clone(), made);
    }
}

/// Whether a port's interface is missing and cannot be made.
pub fn missing(position: usize, vlan: &Vlan, interfaces: &Interfaces) -> Option<Problem> {
    interfaces.get(&vlan.on).is_none().then(|| {
        Problem::new(
            format!("ports[{position}].vlan.on"),
            format!("step `interfaces`: there is no interface `{}` here", vlan.on),
            "create it or correct the name",
        )
    })
}

#[cfg(test)]
mod tests {
    use crate::apply::fake::interface;

    use super::*;

    fn state() -> NodeState {
        serde_json::from_value(serde_json::json!({"node": "n", "source_address": "fc00::1", "ports": [
            {"name": "eth0.7", "role": "core", "vlan": {"on": "eth0", "id": 7}},
            {"name": "eth9.7", "role": "core", "vlan": {"on": "eth9", "id": 7}},
        ]}))
        .unwrap()
    }

    #[test]
    fn a_vlan_to_be_is_like_its_device() {
        let mut interfaces = Interfaces::default();
        interfaces.0.insert("eth0".to_owned(), segue_dataplane::Interface { mtu: 9000, ..interface(5) });
        pretend(&state(), &mut interfaces);
        let made = interfaces.get("eth0.7").expect("its device is there");
        assert_eq!((made.ifindex, made.mtu, made.up), (6, 9000, true));
        assert!(interfaces.get("eth9.7").is_none(), "its device is not");
    }

    #[test]
    fn a_missing_device_is_named_with_its_key() {
        let problem = missing(1, state().ports[1].vlan.as_ref().unwrap(), &Interfaces::default()).unwrap();
        assert_eq!(
            problem.to_string(),
            "ports[1].vlan.on: step `interfaces`: there is no interface `eth9` here; create it or correct the name"
        );
    }
}
