//! Many links at once. `ip` costs some milliseconds each time that it is started, and a network of the tests has dozens of links.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use segue_host::{Run, namespace, ready};

use crate::netns::{End, Netns};
use crate::offloads::{are_running, bring_up, suit_xdp};

/// Links to be made, and what `ip` is to do in namespaces then.
#[derive(Debug, Default)]
pub struct Wiring {
    links: String,
    /// Namespaces' names, and what is in them.
    ends: Vec<(String, String)>,
    lines: Vec<(String, String)>,
}

impl Wiring {
    /// A veth pair, as [`veth`] makes it.
    pub fn veth(&mut self, left: End<'_>, right: End<'_>, mtu: u32) {
        self.links.push_str(&format!(
            "link add name {} netns {} mtu {mtu} address {} type veth peer name {} netns {} mtu {mtu} address {}\n",
            left.name,
            left.netns.name(),
            left.mac,
            right.name,
            right.netns.name(),
            right.mac
        ));
        self.ends.extend([left, right].map(|end| (end.netns.name().to_owned(), end.name.to_owned())));
    }

    /// Lines for `ip`, without the word itself, to be done in this namespace when all links are up. The family follows from the
    /// addresses.
    pub fn ip(&mut self, netns: &Netns, lines: &str) {
        let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
        self.lines.extend(lines.map(|line| (netns.name().to_owned(), line.to_owned())));
    }

    /// Makes it all, and waits until the kernel knows it: that a link has a carrier, a link-local address and somebody who answers for it, and
    /// that an address of the node is its own, it works out in the background, where a busy machine lets it wait.
    ///
    /// # Panics
    ///
    /// When `ip` or the kernel refuses something, or does not get there.
    pub fn lay(self) {
        fed(Run::new("ip", ["-batch", "-"]), self.links);
        let names = || by_namespace(self.ends.iter().map(|(netns, name)| (netns, name.clone())));
        let each = |what: fn(std::str::Lines<'_>) -> std::io::Result<()>| {
            for (netns, names) in names() {
                let done = namespace::inside(netns, || what(names.lines()));
                done.unwrap_or_else(|error| panic!("{error}")).unwrap_or_else(|error| panic!("{names}{error}"));
            }
        };
        // GRO on all ends before any comes up: that is when a veth learns whether XDP may redirect to its peer.
        each(|names| suit_xdp(names));
        each(|names| bring_up(names));
        for (netns, lines) in by_namespace(self.lines.iter().map(|(netns, line)| (netns, line.clone()))) {
            fed(Run::new("ip", ["-batch", "-"]).inside(netns), lines);
        }
        each(|names| until("carriers", || are_running(names.clone())));
        for (netns, names) in names() {
            ready::wait(netns, &names.lines().collect::<Vec<_>>()).unwrap_or_else(|error| panic!("{error}"));
        }
        for (netns, lines) in by_namespace(self.lines.iter().map(|(netns, line)| (netns, line.clone()))) {
            let own: Vec<String> = lines.lines().filter_map(own_address).collect();
            let done = namespace::inside(netns, || until("addresses", || have_routes(&own)));
            done.unwrap_or_else(|error| panic!("{error}")).unwrap_or_else(|error| panic!("{lines}{error}"));
        }
    }
}

/// Joins two namespaces by a veth pair, both ends up, with the given MTU. Each end has GRO on, so that what XDP redirects to it
/// arrives, and no transmit checksum offload, so that what it sends to a port with XDP is complete.
pub fn veth(left: End<'_>, right: End<'_>, mtu: u32) {
    let mut wiring = Wiring::default();
    wiring.veth(left, right, mtu);
    wiring.lay();
}

/// Longer than a kernel lets its own work wait.
const PATIENCE: Duration = Duration::from_secs(10);

fn until(what: &str, is: impl Fn() -> std::io::Result<bool>) -> std::io::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !is()? {
        if Instant::now() > end {
            return Err(std::io::Error::other(format!("{what} do not come up")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The IPv6 address that such a line gives to the node at once, as `/proc/net/ipv6_route` writes it.
fn own_address(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["address", "add", address, .., "nodad"] = words[..] else { return None };
    let address: Ipv6Addr = address.split('/').next()?.parse().ok()?;
    Some(address.octets().iter().map(|octet| format!("{octet:02x}")).collect())
}

/// Whether each of these addresses has a route of its own, in this thread's namespace.
fn have_routes(addresses: &[String]) -> std::io::Result<bool> {
    if addresses.is_empty() {
        return Ok(true);
    }
    let routes = std::fs::read_to_string("/proc/thread-self/net/ipv6_route")?;
    let has_route = |address: &String| routes.lines().any(|line| line.starts_with(&format!("{address} 80 ")));
    Ok(addresses.iter().all(has_route))
}

/// Lines of each namespace, in their order.
fn by_namespace<'a>(lines: impl Iterator<Item = (&'a String, String)>) -> Vec<(&'a str, String)> {
    let mut found: Vec<(&str, String)> = Vec::new();
    for (netns, line) in lines {
        match found.iter_mut().find(|(name, _)| *name == netns) {
            Some((_, of_it)) => *of_it += &(line + "\n"),
            None => found.push((netns, line + "\n")),
        }
    }
    found
}

fn fed(run: Run<'_>, input: String) {
    let ended = run.input(input.clone()).text();
    ended.unwrap_or_else(|error| panic!("{error}\n{input}"));
}
