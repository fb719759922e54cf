//! The kernel's notifications about links, addresses, routes, rules and neighbours, gathered into bursts. Only what differs from
//! what was known is told: others make neighbours come, go and be asked for, and interfaces that are none of Segue's come and
//! go with containers.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    net::IpAddr,
    os::fd::AsFd,
    time::Duration,
};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    link::{LinkAttribute, LinkFlags, LinkMessage},
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState},
    route::RouteMessage,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::RcvBufForce;

use segue_host::netlink::Netlink;

/// RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE,
/// RTNLGRP_IPV6_RULE.
const GROUPS: [u32; 7] = [1, 5, 7, 8, 9, 11, 19];
/// RTNLGRP_NEIGH: on a socket of its own, since strangers may fill it.
const NEIGHBOURS: u32 = 3;
/// Room for a burst of notifications, octets.
const RECEIVE_BUFFER: usize = 1 << 20;

/// A neighbour: the interface's number, and its address there.
pub type Neighbour = (u32, IpAddr);

/// What a burst of notifications touched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Interfaces that came, went, or are not what they were, by their names before and after.
    pub links: BTreeSet<String>,
    /// Numbers of links by which any way may have changed: those that went down or came up, and those of a flood of which some was lost.
    pub turned: BTreeSet<u32>,
    /// Any interface, or the routing rules.
    pub all_links: bool,
    /// Routes: any way may have changed.
    pub routes: bool,
    /// A route with Segue's protocol number went, and perhaps should not have.
    pub own_route_gone: bool,
    /// Neighbours that have another link-layer address than before, or none any more.
    pub neighbours: BTreeSet<Neighbour>,
    /// Any neighbour.
    pub all_neighbours: bool,
}

impl Changes {
    /// When nobody knows what was missed.
    pub fn everything() -> Self {
        Self { all_links: true, routes: true, own_route_gone: true, all_neighbours: true, ..Self::default() }
    }

    /// Adds what happened later.
    pub fn add(&mut self, other: Self) {
        self.links.extend(other.links);
        self.turned.extend(other.turned);
        self.neighbours.extend(other.neighbours);
        self.all_links |= other.all_links;
        self.routes |= other.routes;
        self.own_route_gone |= other.own_route_gone;
        self.all_neighbours |= other.all_neighbours;
    }

    /// Whether ports, or routes of Segue's, may have to be reconciled.
    pub fn structural(&self) -> bool {
        self.all_links || self.own_route_gone || !self.links.is_empty()
    }
}

/// What matters of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Link {
    name: String,
    mtu: u32,
    mac: Vec<u8>,
    up: bool,
    /// The device above it: a bridge or a VRF.
    above: Option<u32>,
    /// The other end of a veth pair is in another namespace.
    elsewhere: bool,
}

/// What is known of interfaces and neighbours.
#[derive(Debug, Default)]
struct Known {
    links: BTreeMap<u32, Link>,
    /// Link-layer addresses. Those that have none are not here.
    neighbours: HashMap<Neighbour, Vec<u8>>,
}

/// A subscription in the network namespace in which it was opened.
pub struct Events {
    /// By this number notifications name what the agent has changed itself.
    own: u32,
    socket: Socket,
    neighbours: Socket,
    known: Known,
}

impl Events {
    /// Subscribes, and asks what there is. `own`: the number of the socket by which the agent changes routes.
    pub fn open(own: u32) -> io::Result<Self> {
        let (socket, neighbours) = (subscribed(&GROUPS)?, subscribed(&[NEIGHBOURS])?);
        let mut events = Self { own, socket, neighbours, known: Known::default() };
        events.known.ask_links()?;
        events.known.ask_neighbours()?;
        Ok(events)
    }

    /// Waits at most `timeout` for a notification, then gathers what follows within `quiet`, but no longer than four
    /// times that; `Changes::default()` if nothing came that matters.
    pub fn wait(&mut self, timeout: Duration, quiet: Duration) -> io::Result<Changes> {
        let mut changes = Changes::default();
        if !self.readable(timeout)? {
            return Ok(changes);
        }
        gather(|step| match step {
            Step::Drain => self.drain(&mut changes).map(|()| true),
            Step::Pause => {
                std::thread::sleep(quiet);
                self.readable(Duration::ZERO)
            }
        })?;
        Ok(changes)
    }

    fn readable(&self, timeout: Duration) -> io::Result<bool> {
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        let mut descriptors =
            [&self.socket, &self.neighbours].map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        match poll(&mut descriptors, timeout) {
            Ok(count) => Ok(count > 0),
            Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn drain(&mut self, changes: &mut Changes) -> io::Result<()> {
        let (known, own) = (&mut self.known, self.own);
        let by_others = |message: &RouteNetlinkMessage, by: u32| by != own || !is_removal(message);
        let whole = received(&mut self.socket, |message, by| {
            if by_others(message, by) {
                known.note(message, changes);
            }
        })?;
        if !whole {
            // What was lost may have been anything.
            changes.add(Changes::everything());
            known.ask_links()?;
        }
        let mut noisy = BTreeSet::new();
        let whole = received(&mut self.neighbours, |message, _| {
            noisy.extend(link_of(message));
            known.note(message, changes);
        })?;
        if !whole {
            let now = list(RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()))?;
            known.catch_up(now, noisy, changes);
        }
        Ok(())
    }
}

/// What is done in turn while notifications are gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Read all that has come.
    Drain,
    /// Wait for a while; whether something has come meanwhile.
    Pause,
}

/// Notifications are read at intervals and not as they come: a flood of them, which strangers may cause, costs no more than reading
/// what fits the sockets' buffers at each interval.
fn gather(mut step: impl FnMut(Step) -> io::Result<bool>) -> io::Result<()> {
    /// Then what has been gathered is acted on, even if more comes.
    const TURNS: usize = 4;
    for _ in 0..TURNS {
        step(Step::Drain)?;
        if !step(Step::Pause)? {
            break;
        }
    }
    Ok(())
}

fn subscribed(groups: &[u32]) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind(&SocketAddr::new(0, 0))?;
    for group in groups {
        socket.add_membership(*group)?;
    }
    // Whatever net.core.rmem_max says; an agent that may not do so, in a user namespace, has what that allows.
    if nix::sys::socket::setsockopt(&socket.as_fd(), RcvBufForce, &RECEIVE_BUFFER).is_err() {
        socket.set_rx_buf_sz(RECEIVE_BUFFER)?;
    }
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// Reads all that has come, and by whom it was brought about, as the kernel numbers sockets; false if something was lost, because more came than fits, or cannot be read.
fn received(socket: &mut Socket, mut note: impl FnMut(&RouteNetlinkMessage, u32)) -> io::Result<bool> {
    let mut whole = true;
    loop {
        match socket.recv_from_full() {
            Ok((bytes, _)) => whole &= read(&bytes, &mut note),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(whole),
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => whole = false,
            Err(error) => return Err(error),
        }
    }
}

fn read(bytes: &[u8], note: &mut impl FnMut(&RouteNetlinkMessage, u32)) -> bool {
    let mut rest = bytes;
    let mut whole = true;
    while rest.len() >= 16 {
        let length = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        if length < 16 || length > rest.len() {
            return false;
        }
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&rest[..length]) {
            Ok(NetlinkMessage { header, payload: NetlinkPayload::InnerMessage(message), .. }) => {
                note(&message, header.port_number);
            }
            Ok(_) => {}
            // A notification that this version cannot read may matter.
            Err(_) => whole = false,
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    whole
}

impl Known {
    fn ask_links(&mut self) -> io::Result<()> {
        self.links.clear();
        let mut ignored = Changes::default();
        for answer in list(RouteNetlinkMessage::GetLink(LinkMessage::default()))? {
            self.note(&answer, &mut ignored);
        }
        Ok(())
    }

    fn ask_neighbours(&mut self) -> io::Result<()> {
        self.neighbours.clear();
        let mut ignored = Changes::default();
        for answer in list(RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()))? {
            self.note(&answer, &mut ignored);
        }
        Ok(())
    }

    /// After notifications about neighbours were lost, `now` is what there is. Strangers can bring that about with a flood on their own
    /// link, which must not cost the ways by others: lost are the neighbours that differ from what was known, and on the links that the
    /// rest of the burst was about, `noisy`, perhaps any, for one may have moved and moved back. On another link that would be one that
    /// did so in this very moment: ways by it end with their lifetime.
    fn catch_up(&mut self, now: Vec<RouteNetlinkMessage>, noisy: BTreeSet<u32>, changes: &mut Changes) {
        let before = std::mem::take(&mut self.neighbours);
        let mut ignored = Changes::default();
        now.iter().for_each(|answer| self.note(answer, &mut ignored));
        let lost = before.into_iter().filter(|(neighbour, mac)| self.neighbours.get(neighbour) != Some(mac));
        changes.neighbours.extend(lost.map(|(neighbour, _)| neighbour));
        changes.turned.extend(noisy);
    }

    fn note(&mut self, message: &RouteNetlinkMessage, changes: &mut Changes) {
        use RouteNetlinkMessage as Message;
        match message {
            Message::NewLink(link) => self.note_link(link, changes),
            // A port that leaves a bridge is told as the end of a link of another family.
            Message::DelLink(link) if link.header.interface_family == AddressFamily::Unspec => {
                changes.links.extend(self.links.remove(&link.header.index).map(|link| link.name));
            }
            Message::NewAddress(address) | Message::DelAddress(address) => {
                match self.links.get(&address.header.index) {
                    Some(link) => drop(changes.links.insert(link.name.clone())),
                    None => changes.all_links = true,
                }
            }
            // What a rule says of one port may hold for others from now on.
            Message::NewRule(_) | Message::DelRule(_) => (changes.all_links, changes.routes) = (true, true),
            // Ways to SIDs of this node are not asked of routes: those of functions that die and come back cost nothing.
            Message::DelRoute(route) if is_own(route) => changes.own_route_gone = true,
            Message::NewRoute(route) if is_own(route) => {}
            Message::NewRoute(_) | Message::DelRoute(_) => changes.routes = true,
            Message::NewNeighbour(neighbour) => self.note_neighbour(neighbour, true, changes),
            Message::DelNeighbour(neighbour) => self.note_neighbour(neighbour, false, changes),
            _ => {}
        }
    }

    /// Wireless devices announce statistics in link messages, bridges their ports' states, and XDP its programs.
    fn note_link(&mut self, message: &LinkMessage, changes: &mut Changes) {
        let mut link = Link {
            name: String::new(),
            mtu: 0,
            mac: Vec::new(),
            // As `Interfaces` has it.
            up: message.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
            above: None,
            elsewhere: false,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::Wireless(_) => return,
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Address(mac) => link.mac.clone_from(mac),
                LinkAttribute::Controller(above) => link.above = Some(*above),
                LinkAttribute::LinkNetNsId(_) => link.elsewhere = true,
                _ => {}
            }
        }
        if message.header.interface_family != AddressFamily::Unspec || link.name.is_empty() {
            return;
        }
        let name = link.name.clone();
        let Some(before) = self.links.insert(message.header.index, link.clone()) else {
            changes.links.insert(name);
            return;
        };
        if before == link {
            return;
        }
        // Of ways by it nothing else tells. That it goes down or has another address its neighbours tell, who go.
        changes.routes |= (before.mtu, before.above) != (link.mtu, link.above);
        if before.up != link.up {
            changes.turned.insert(message.header.index);
        }
        changes.links.extend([before.name, name]);
    }

    /// A way may be remembered by a neighbour that had a link-layer address. One that gets its first, or keeps what it has while the
    /// kernel asks whether it is there still, changes nothing.
    fn note_neighbour(&mut self, message: &NeighbourMessage, there: bool, changes: &mut Changes) {
        use NeighbourState as State;
        let (mut address, mut mac) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(found)) => address = Some(IpAddr::V4(*found)),
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(found)) => address = Some(IpAddr::V6(*found)),
                NeighbourAttribute::LinkLayerAddress(found) => mac = Some(found.clone()),
                _ => {}
            }
        }
        // Without an address it is a bridge's: what lies behind which of its ports.
        let Some(address) = address.filter(|address| !address.is_multicast()) else { return };
        if message.header.flags.contains(NeighbourFlags::Proxy) {
            return;
        }
        let neighbour = (message.header.ifindex, address);
        let valid = matches!(
            message.header.state,
            State::Reachable | State::Stale | State::Delay | State::Probe | State::Permanent | State::Noarp
        );
        let before = match mac.filter(|_| there && valid) {
            Some(mac) => self.neighbours.insert(neighbour, mac.clone()).filter(|before| *before != mac),
            None => self.neighbours.remove(&neighbour),
        };
        if before.is_some() {
            changes.neighbours.insert(neighbour);
        }
    }
}

/// Whether it is about a route of Segue's that has gone: the agent itself removes those of functions that die.
fn is_removal(message: &RouteNetlinkMessage) -> bool {
    matches!(message, RouteNetlinkMessage::DelRoute(route) if is_own(route))
}

fn is_own(route: &RouteMessage) -> bool {
    u8::from(route.header.protocol) == super::ROUTE_PROTOCOL
}

/// The number of the link that a notification about a neighbour is about.
fn link_of(message: &RouteNetlinkMessage) -> Option<u32> {
    match message {
        RouteNetlinkMessage::NewNeighbour(neighbour) | RouteNetlinkMessage::DelNeighbour(neighbour) => {
            Some(neighbour.header.ifindex)
        }
        _ => None,
    }
}

fn list(question: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut socket = Netlink::open(NETLINK_ROUTE).map_err(io::Error::other)?;
    socket.dump(question).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: [u8; 4] = [192, 0, 2, 1];

    fn neighbour(state: NeighbourState, mac: Option<u8>) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.ifindex = 3;
        message.header.state = state;
        message.attributes.push(NeighbourAttribute::Destination(NeighbourAddress::Inet(ADDRESS.into())));
        message.attributes.extend(mac.map(|last| NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, last])));
        message
    }

    fn told(known: &mut Known, message: RouteNetlinkMessage) -> Changes {
        let mut changes = Changes::default();
        known.note(&message, &mut changes);
        changes
    }

    #[test]
    fn however_much_comes_it_is_read_at_intervals_and_acted_on() {
        let steps = |bursts: usize| {
            let (mut left, mut steps) = (bursts, Vec::new());
            gather(|step| {
                steps.push(step);
                left -= usize::from(step == Step::Drain);
                Ok(left > 0)
            })
            .unwrap();
            steps
        };
        assert_eq!(steps(1), [Step::Drain, Step::Pause]);
        assert_eq!(steps(2), [Step::Drain, Step::Pause, Step::Drain, Step::Pause]);
        let flood = steps(1_000_000);
        assert_eq!(flood, [Step::Drain, Step::Pause].repeat(4), "no reading without a pause behind it");
    }

    #[test]
    fn a_neighbour_matters_when_it_is_not_where_it_was() {
        use NeighbourState as State;
        use RouteNetlinkMessage::{DelNeighbour, NewNeighbour};
        let mut known = Known::default();
        let changed = Changes { neighbours: BTreeSet::from([(3, IpAddr::from(ADDRESS))]), ..Changes::default() };
        let quiet = [
            (State::Incomplete, None),
            (State::Failed, None),
            (State::Incomplete, None),
            (State::Reachable, Some(1)),
            (State::Stale, Some(1)),
            (State::Delay, Some(1)),
            (State::Probe, Some(1)),
            (State::Reachable, Some(1)),
        ];
        for (state, mac) in quiet {
            assert_eq!(told(&mut known, NewNeighbour(neighbour(state, mac))), Changes::default(), "{state:?}");
        }
        assert_eq!(told(&mut known, NewNeighbour(neighbour(State::Reachable, Some(2)))), changed, "it moved");
        assert_eq!(told(&mut known, NewNeighbour(neighbour(State::Failed, Some(2)))), changed, "it does not answer");
        assert_eq!(told(&mut known, NewNeighbour(neighbour(State::Stale, Some(2)))), Changes::default(), "it is back");
        assert_eq!(told(&mut known, DelNeighbour(neighbour(State::Stale, Some(2)))), changed, "it is forgotten");
        assert_eq!(told(&mut known, DelNeighbour(neighbour(State::Stale, Some(2)))), Changes::default());
        let mut of_bridge = neighbour(State::Reachable, Some(7));
        of_bridge.attributes.remove(0);
        assert_eq!(told(&mut known, NewNeighbour(of_bridge)), Changes::default(), "what a bridge learns");
    }

    #[test]
    fn a_flood_of_neighbours_of_which_some_is_lost_costs_its_own_link() {
        let on = |link: u32, last: u8, mac: u8| {
            let mut message = neighbour(NeighbourState::Reachable, Some(mac));
            message.header.ifindex = link;
            message.attributes[0] = NeighbourAttribute::Destination(NeighbourAddress::Inet([192, 0, 2, last].into()));
            RouteNetlinkMessage::NewNeighbour(message)
        };
        let mut known = Known::default();
        for message in [on(3, 1, 1), on(3, 2, 1), on(4, 1, 1), on(4, 2, 1), on(5, 1, 1)] {
            assert_eq!(told(&mut known, message), Changes::default());
        }
        // Link 3 is flooded; of what was lost something was about one neighbour on link 4 that moved, and one that went.
        let mut changes = Changes::default();
        known.catch_up(vec![on(3, 1, 9), on(3, 7, 1), on(4, 1, 2), on(5, 1, 1)], [3].into(), &mut changes);
        let lost = [(3, 1), (3, 2), (4, 1), (4, 2)].map(|(link, last)| (link, IpAddr::from([192, 0, 2, last])));
        assert_eq!(changes, Changes { neighbours: lost.into(), turned: [3].into(), ..Changes::default() });
        assert!(!changes.structural(), "no port is about it");
        assert_eq!(told(&mut known, on(4, 1, 2)), Changes::default(), "it is known now");
    }

    #[test]
    fn routes_of_sids_cost_no_ways() {
        use RouteNetlinkMessage::{DelRoute, NewRoute};
        let mut known = Known::default();
        let mut own = RouteMessage::default();
        own.header.protocol = super::super::ROUTE_PROTOCOL.into();
        assert_eq!(told(&mut known, NewRoute(own.clone())), Changes::default());
        assert_eq!(told(&mut known, DelRoute(own)), Changes { own_route_gone: true, ..Changes::default() });
        let others = Changes { routes: true, ..Changes::default() };
        assert_eq!(told(&mut known, NewRoute(RouteMessage::default())), others);
        assert_eq!(told(&mut known, DelRoute(RouteMessage::default())), others);
    }

    #[test]
    fn a_link_matters_when_it_is_not_what_it_was() {
        use RouteNetlinkMessage::{DelLink, NewLink};
        let link = |name: &str, mtu: u32, up: bool| {
            let mut message = LinkMessage::default();
            message.header.index = 7;
            if up {
                message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
            }
            message.attributes = vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::Mtu(mtu)];
            message
        };
        let named = |names: &[&str], routes, turned| Changes {
            links: names.iter().map(|name| (*name).to_owned()).collect(),
            turned: if turned { [7].into() } else { BTreeSet::new() },
            routes,
            ..Changes::default()
        };
        let mut known = Known::default();
        assert_eq!(told(&mut known, NewLink(link("a", 1500, false))), named(&["a"], false, false), "new");
        assert_eq!(told(&mut known, NewLink(link("a", 1500, false))), Changes::default(), "nothing new");
        assert_eq!(told(&mut known, NewLink(link("a", 1500, true))), named(&["a"], false, true), "up");
        assert_eq!(told(&mut known, NewLink(link("a", 1400, true))), named(&["a"], true, false), "narrower");
        assert_eq!(told(&mut known, NewLink(link("b", 1400, true))), named(&["a", "b"], false, false), "another name");
        assert_eq!(told(&mut known, DelLink(link("b", 1400, true))), named(&["b"], false, false), "gone");
    }
}
