//! Functions whose links are virtual functions of a network card (SR-IOV).
//!
//! ```text
//!  node                                              namespace of the function
//!    fnw-NAME, VLAN on the card  ~~~ the card ~~~>  west, a virtual function in that VLAN
//!    fne-NAME, another one       ~~~ the card ~~~>  east, another one
//! ```
//!
//! The node's ends are VLANs, on the card or on another interface of the same switch (`by`), and it is the card that takes tags off and puts
//! them on. Nobody makes or removes a virtual function: its interface is moved to the function, and comes back when the function's namespace
//! ends. While the function is not there, the node's ends are down. The alias of a node's end says where on the bus its virtual function is, what
//! that one's interface is called on the node, and what the card enforced before; none of it is left to the function.

use segue_host::Namespace;
use segue_host::link::{Link, LinkSocket};
use segue_host::sriov::{CardSocket, Settings, card_of};
use segue_host::sysctl;
use segue_model::node::{NodeFunction, NodeState};
use segue_model::wiring::Wiring;

use super::card::{Given, Seen, Side, at, begins, changed_by_another, sides};
use super::place::Place;
use super::{ALIAS, BEFORE, FORWARDING, lead_through, undo};
use crate::kernel::KernelError;
use crate::netfilter::{PROBE_FROM, PROBE_TO, quiet, set, taken};

/// How aliases of virtual functions begin that a function has; that at west has [`BEFORE`].
const OURS: &str = "segue function";
/// Octets of an interface's name.
const NAME_MAX: usize = 15;

/// Ends that stand in the way of what `state` needs go: those of its functions that lead elsewhere now, and those of others that have a VLAN
/// which is now another's. All else that nobody needs goes with [`super::remove`].
pub(super) fn clear(links: &mut LinkSocket, state: &NodeState) -> Result<bool, KernelError> {
    let functions: Vec<_> = state.attached().filter(|(_, function)| function.vf.is_some()).collect();
    if functions.is_empty() {
        return Ok(false);
    }
    let mut cards = CardSocket::open()?;
    // Names of ends with whether what is there fits, and VLANs with the ends that are to have them.
    let (mut fits, mut tags) = (Vec::new(), Vec::new());
    for (wiring, function) in &functions {
        let Some(vf) = &function.vf else { continue };
        let Some(seen) = Seen::look(links, &mut cards, function, vf)? else { continue };
        for side in sides(wiring, vf) {
            fits.push((side.near.to_owned(), seen.given(&side, &begins(wiring, function)).is_some()));
            tags.push((seen.tag(&side), side.near.to_owned()));
        }
    }
    let mut changed = false;
    for link in links.all()?.into_iter().filter(|link| link.alias.starts_with(ALIAS)) {
        let known = fits.iter().find(|(name, _)| *name == link.name);
        let is_anothers = tags.iter().any(|(tag, name)| link.tag() == Some(*tag) && *name != link.name);
        if known.is_some_and(|(_, fits)| !fits) || (known.is_none() && is_anothers) {
            undo(&link.alias)?;
            links.delete(&link.name)?;
            changed = true;
        }
    }
    Ok(changed)
}

/// Gives a function its virtual functions, and the node its ends. What is missing (the card, a virtual function, its interface) is waited
/// for. Returns whether the node has got other interfaces.
pub(super) fn make(
    links: &mut LinkSocket,
    wiring: &Wiring,
    function: &NodeFunction,
    state: &NodeState,
    mtu: u32,
) -> Result<bool, KernelError> {
    let Some(vf) = &function.vf else { return Ok(false) };
    let mut cards = CardSocket::open()?;
    if let (Some(count), Some(card)) = (vf.make, cards.find(&vf.device)?)
        && card.count() == 0
        && card.room().is_some()
    {
        tracing::info!(card = vf.device, count, "it makes virtual functions");
        card.make(count)?;
    }
    let mut changed = false;
    let mut is_attached = true;
    for side in sides(wiring, vf) {
        // Anew: what was done for the other side is to be seen.
        let Some(seen) = Seen::look(links, &mut cards, function, vf)? else { return Ok(changed) };
        let begins = begins(wiring, function);
        let given = match seen.given(&side, &begins) {
            Some(given) => given,
            None => match near_end(links, wiring, function, &side, &seen, state)? {
                Some(given) => {
                    changed = true;
                    given
                }
                None => return Ok(changed),
            },
        };
        is_attached &= far_end(links, &mut cards, &side, &given, &seen)?;
    }
    let Some(seen) = Seen::look(links, &mut cards, function, vf)? else { return Ok(changed) };
    let bounds = seen.here.iter().filter(|link| [vf.device.as_str(), vf.carrier()].contains(&link.name.as_str()));
    let mtu = bounds.map(Link::mtu).fold(mtu, u32::min);
    match seen.namespace.filter(|_| is_attached) {
        Some(namespace) => changed |= attach(links, wiring, function, &namespace, &seen.carrier, mtu)?,
        None => {
            for side in sides(wiring, vf) {
                links.take_down(side.near)?;
            }
        }
    }
    Ok(changed)
}

/// Makes the node's end of one side, and chooses the virtual function that it has.
fn near_end(
    links: &mut LinkSocket,
    wiring: &Wiring,
    function: &NodeFunction,
    side: &Side<'_>,
    seen: &Seen,
    state: &NodeState,
) -> Result<Option<Given>, KernelError> {
    if seen.here.iter().any(|link| link.name == side.near) {
        return Err(taken(side.near, "give the function another name"));
    }
    let found = seen.choose(side, state).and_then(|number| Some((number, seen.card.address(number)?)));
    let Some((number, address)) = found else { return Ok(None) };
    let now = seen.card.settings.get(number as usize).copied().unwrap_or_default();
    let before = match now.mac {
        // What an agent before this one has set is not what was there before.
        mac if mac == side.mac => Settings::default(),
        // The card does not tell an address that the virtual function has chosen itself from one that it enforces.
        _ => Settings { mac: [0; 6], ..now },
    };
    let called = match at(&seen.here, &address) {
        Some(link) => link.name.clone(),
        // Whoever started the function has moved it: it gets a name such as udev's, if there is room for one.
        None => format!("{}v{number}", seen.card.name).chars().take(NAME_MAX).collect(),
    };
    let given = Given { address, called, before };
    tracing::info!(
        function = wiring.namespace,
        card = seen.card.name,
        number,
        vlan = side.wanted.vlan,
        "it gets a virtual function"
    );
    let made = links.add_vlan(side.near, &given.written(wiring, &Place::of(function)), seen.tag(side));
    made.map_err(|error| {
        let error = KernelError::from(error);
        match error.errno {
            Some(nix::libc::EEXIST) => KernelError {
                cause: format!("{} carries VLAN {} already", seen.carrier.name, side.wanted.vlan),
                remedy: "choose another VLAN, or remove that interface (`ip -d link`)".to_owned(),
                ..error
            },
            Some(nix::libc::EOPNOTSUPP) => KernelError {
                cause: "this kernel has no VLANs".to_owned(),
                remedy: "load the module 8021q, or use a kernel with CONFIG_VLAN_8021Q".to_owned(),
                ..error
            },
            _ => error,
        }
    })?;
    Ok(Some(given))
}

/// Has the card enforce what is to be, and moves the virtual function to the function if that is there, else back. Whether the function has
/// it.
fn far_end(
    links: &mut LinkSocket,
    cards: &mut CardSocket,
    side: &Side<'_>,
    given: &Given,
    seen: &Seen,
) -> Result<bool, KernelError> {
    let here = at(&seen.here, &given.address);
    // Before the card fixes it: some drivers take no address afterwards, not even the same.
    if let Some(link) = here.filter(|link| link.mac() != Some(side.mac) && seen.namespace.is_some()) {
        links.take_down(&link.name)?;
        let _ = links.set_mac(&link.name, side.mac);
    }
    if let Some(number) = seen.card.number(&given.address) {
        let now = seen.card.settings.get(number as usize).copied().unwrap_or_default();
        let wanted = side.settings(&now);
        // An end that is there has its VLAN for good: no state changes it.
        if now.vlan != wanted.vlan && seen.here.iter().any(|link| link.name == side.near) {
            changed_by_another(&given.address, wanted.differences(&now).join(", "));
        }
        cards.set(&seen.card, number, &wanted, false).map_err(refused)?;
    }
    let Some(namespace) = &seen.namespace else {
        if let Some(link) = here.filter(|link| link.alias.starts_with(OURS)) {
            come_home(links, link, given)?;
        }
        return Ok(false);
    };
    let there = at(&seen.there, &given.address);
    match (there, here) {
        (Some(link), _) if link.name == side.far && link.alias.starts_with(OURS) => {
            return Ok(link.mac() == Some(side.mac));
        }
        // Whoever started the function has given it to it.
        (Some(link), _) => {
            namespace.inside(|| -> segue_host::Result<()> {
                let mut links = LinkSocket::open()?;
                links.take_down(&link.name)?;
                links.rename(&link.name, side.far)
            })??;
        }
        (None, Some(link)) => {
            links.take_down(&link.name)?;
            links.hand_over(&link.name, side.far, namespace)?;
        }
        (None, None) => return Ok(false),
    }
    let mac = namespace.inside(|| -> Result<_, KernelError> {
        let mut links = LinkSocket::open()?;
        let ours = match side.far {
            Wiring::WEST => format!("{BEFORE}{}", sysctl::get(FORWARDING)?.unwrap_or_default()),
            _ => OURS.to_owned(),
        };
        links.alias(side.far, &ours)?;
        set(&format!("ipv6/conf/{}/addr_gen_mode", side.far), "1")?;
        // Some drivers take the card's address only now.
        links.settle(side.far, None, 0)?;
        Ok(links.find(side.far)?.and_then(|link| link.mac()))
    })??;
    Ok(mac == Some(side.mac))
}

/// Puts an interface that has come back, from a namespace that ended or out of ours, to what it was.
fn come_home(links: &mut LinkSocket, link: &Link, given: &Given) -> Result<(), KernelError> {
    links.take_down(&link.name)?;
    links.alias(&link.name, "")?;
    // Somebody else may have the name by now.
    if given.called != link.name && links.find(&given.called)?.is_none() {
        links.rename(&link.name, &given.called)?;
    }
    Ok(())
}

fn refused(error: segue_host::HostError) -> KernelError {
    let error = KernelError::from(error);
    let remedy = match error.errno {
        Some(nix::libc::EOPNOTSUPP) => "the card's driver does not know this setting: remove the key",
        Some(nix::libc::EINVAL | nix::libc::ERANGE) => {
            "the card's driver does not take this value: choose another, or remove the key"
        }
        _ => return error,
    };
    KernelError { remedy: remedy.to_owned(), ..error }
}

/// Both sides are the function's: it leads from one to the other, and the node's ends come up. Whether they had been down.
fn attach(
    links: &mut LinkSocket,
    wiring: &Wiring,
    function: &NodeFunction,
    namespace: &Namespace,
    carrier: &Link,
    mtu: u32,
) -> Result<bool, KernelError> {
    // The node's ends have the address of what carries them.
    let mut wiring = wiring.clone();
    if let Some(mac) = carrier.mac() {
        (wiring.node_west_mac.0, wiring.node_east_mac.0) = (mac, mac);
    }
    namespace.inside(|| lead_through(&wiring, mtu))??;
    let mut changed = false;
    for name in [&wiring.node_west, &wiring.node_east] {
        changed |= links.find(name)?.is_some_and(|link| !link.is_up());
        quiet(name)?;
        match links.settle(name, None, mtu).map_err(KernelError::from) {
            // The kernel brings both up together.
            Err(error) if error.errno == Some(nix::libc::ENETDOWN) => changed = false,
            result => result?,
        }
    }
    if function.watch.probe.is_some_and(|probe| probe.through) {
        for (name, addresses) in [(&wiring.node_west, PROBE_FROM), (&wiring.node_east, PROBE_TO)] {
            addresses.into_iter().try_for_each(|address| links.quiet_address(name, address))?;
        }
    }
    Ok(changed)
}

/// Whether something of a function can be made, or is to be undone, that is not yet.
pub(super) fn has_come(wiring: &Wiring, function: &NodeFunction, state: &NodeState) -> Result<bool, KernelError> {
    let Some(vf) = &function.vf else { return Ok(false) };
    let (mut links, mut cards) = (LinkSocket::open()?, CardSocket::open()?);
    let Some(seen) = Seen::look(&mut links, &mut cards, function, vf)? else { return Ok(false) };
    let begins = begins(wiring, function);
    let is_up = |near: &str| seen.here.iter().any(|link| link.name == near && link.is_up());
    let mut all_there = true;
    for side in sides(wiring, vf) {
        let Some(given) = seen.given(&side, &begins) else {
            return Ok(seen.choose(&side, state).is_some());
        };
        let here = at(&seen.here, &given.address);
        all_there &= at(&seen.there, &given.address).is_some_and(|link| link.mac() == Some(side.mac));
        match &seen.namespace {
            Some(_) if here.is_some() => return Ok(true),
            None if here.is_some_and(|link| link.alias.starts_with(OURS)) => return Ok(true),
            _ => {}
        }
    }
    let ends_up = sides(wiring, vf).iter().all(|side| is_up(side.near));
    let any_up = sides(wiring, vf).iter().any(|side| is_up(side.near));
    // On what is down a VLAN stays down.
    Ok(if all_there { !ends_up && seen.carrier.is_up() } else { any_up })
}

/// Gives back what the node's end with this alias has: the interface its name and its place, the card what it enforced before.
pub(super) fn give_back(alias: &str, place: Option<&Place>) -> Result<(), KernelError> {
    let Some(given) = Given::read(alias) else { return Ok(()) };
    let own = Namespace::open("/proc/thread-self/ns/net")?;
    if let Some(namespace) = place.map(Place::find).transpose()?.flatten() {
        namespace.inside(|| -> Result<(), KernelError> {
            let mut links = LinkSocket::open()?;
            let all = links.all()?;
            let Some(link) = at(&all, &given.address) else { return Ok(()) };
            links.take_down(&link.name)?;
            Ok(links.hand_over(&link.name, &format!("segue-{:x}", link.index()), &own)?)
        })??;
    }
    let (mut links, mut cards) = (LinkSocket::open()?, CardSocket::open()?);
    let all = links.all()?;
    if let Some(link) = at(&all, &given.address) {
        come_home(&mut links, link, &given)?;
    }
    let Some(card) = card_of(&given.address).and_then(|card| Some(at(&all, &card)?.name.clone())) else {
        return Ok(());
    };
    if let Some(card) = cards.find(&card)?
        && let Some(number) = card.number(&given.address)
    {
        // What it does not take back stays as it is: the rest is undone all the same.
        if let Err(error) = cards.set(&card, number, &given.before, true) {
            tracing::warn!(card = card.name, number, "what the card enforced before: {error}");
        }
    }
    Ok(())
}
