//! The network of one namespace, as iproute2 is told of it: in few calls, and in the order in which the kernel wants it.
//!
//! The links themselves are made by whoever knows both ends. Then, for each namespace: [`Network::before_links`], the links,
//! [`Network::bring_up`], [`Network::assign`], [`Network::route`], [`Network::wait_ready`]; where two namespaces share a link, each step in both
//! before the next one.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::link::{Link, LinkSocket};
use crate::{HostError, Result, Run, namespace, ready, sysctl};

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name, at most 15 octets.
    pub name: String,
    /// Its addresses, added without duplicate address detection: usable at once.
    pub addresses: Vec<IpNet>,
}

/// A line for `ip -4 -batch` or `ip -6 -batch`: a route, a neighbour, a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The address families that it is for, `-4` or `-6`: a batch has one for all of its lines.
    pub families: &'static [&'static str],
    /// What `ip` is told.
    pub words: String,
}

/// A namespace's network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// Addresses of `lo`.
    pub loopback: Vec<IpAddr>,
    /// Interfaces besides `lo`.
    pub interfaces: Vec<Interface>,
    /// Lines for `ip -batch` that need the addresses and nothing else.
    pub settings: Vec<String>,
    /// Routes besides connected ones, neighbours that need not be asked for, rules.
    pub lines: Vec<Line>,
    /// Names and values, in either spelling.
    pub sysctls: Vec<(String, String)>,
}

impl Network {
    /// Sets the sysctls that interfaces inherit when they are made.
    ///
    /// # Errors
    /// If the kernel does not have one, or not the value.
    pub fn before_links(&self, namespace: &str) -> Result<()> {
        self.set(namespace, false)
    }

    /// Sets the sysctls that name an interface, and brings all of them up. Every interface must exist by then.
    ///
    /// # Errors
    /// If the kernel refuses one of it.
    pub fn bring_up(&self, namespace: &str) -> Result<()> {
        self.set(namespace, true)?;
        let up = |interface: &Interface| format!("link set dev {} up\n", interface.name);
        batch(namespace, &[], &self.interfaces.iter().map(up).collect::<String>())
    }

    fn set(&self, namespace: &str, of_interfaces: bool) -> Result<()> {
        let wanted: Vec<_> =
            self.sysctls.iter().filter(|(key, _)| self.names_interface(key) == of_interfaces).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        namespace::inside(namespace, || wanted.into_iter().try_for_each(|(key, value)| sysctl::set(key, value)))?
    }

    /// Whether a sysctl is of one of the interfaces: there is no such file before the interface is.
    #[must_use]
    pub fn names_interface(&self, key: &str) -> bool {
        let file = sysctl::file(key);
        self.interfaces.iter().any(|interface| file.split('/').any(|part| part == interface.name))
    }

    /// Gives the interfaces their addresses. Every link must be up at both ends by then, so that the kernel puts connected routes in at
    /// once.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn assign(&self, namespace: &str) -> Result<()> {
        batch(namespace, &[], &self.addresses())
    }

    /// What [`Network::assign`] tells `ip`.
    #[must_use]
    pub fn addresses(&self) -> String {
        let no_dad = |address: IpAddr| if address.is_ipv6() { " nodad" } else { "" };
        let loopback = self.loopback.iter().map(|address| {
            let length = if address.is_ipv6() { 128 } else { 32 };
            format!("addr add {address}/{length} dev lo{}\n", no_dad(*address))
        });
        let others = self.interfaces.iter().flat_map(|interface| {
            let add =
                |address: &IpNet| format!("addr add {address} dev {}{}\n", interface.name, no_dad(address.addr()));
            interface.addresses.iter().map(add)
        });
        loopback.chain(others).chain(self.settings.iter().map(|line| format!("{line}\n"))).collect()
    }

    /// Puts routes, neighbours and rules in.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn route(&self, namespace: &str) -> Result<()> {
        ["-4", "-6"].into_iter().try_for_each(|family| batch(namespace, &[family], &self.routes(family)))
    }

    /// Waits until the interfaces can be reached by IPv6 ([`ready::wait`]).
    ///
    /// # Errors
    /// If that takes longer than 30 seconds.
    pub fn wait_ready(&self, namespace: &str) -> Result<()> {
        ready::wait(namespace, &self.interfaces.iter().map(|interface| interface.name.as_str()).collect::<Vec<_>>())
    }

    /// What [`Network::route`] tells `ip` for a family.
    #[must_use]
    pub fn routes(&self, family: &str) -> String {
        let lines = self.lines.iter().filter(|line| line.families.contains(&family));
        lines.map(|line| format!("{}\n", line.words)).collect()
    }
}

/// Gives `ip` lines inside a namespace; nothing happens if there are none.
///
/// # Errors
/// With the line that `ip` stopped at: its text tells more than its number.
pub fn batch(namespace: &str, options: &[&str], lines: &str) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let arguments = ["-n", namespace].into_iter().chain(options.iter().copied()).chain(["-batch", "-"]);
    let result = Run::new("ip", arguments).input(lines.to_owned()).text();
    result.map(drop).map_err(|error| name_line(error, namespace, lines))
}

fn name_line(error: HostError, namespace: &str, lines: &str) -> HostError {
    let HostError::Command { command, status, output, remedy, .. } = error else { return error };
    let number = output.rsplit_once("-:").and_then(|(_, number)| number.trim().parse::<usize>().ok());
    let line = number.and_then(|number| lines.lines().nth(number.saturating_sub(1)));
    let command = line.map_or(command, |line| format!("ip {line}"));
    HostError::Command { place: namespace.to_owned(), command, status, output, remedy }
}

/// Gives the namespace its owner's mark, as alias of `lo`, and brings that up.
///
/// # Errors
/// If `ip` fails.
pub fn mark(namespace: &str, mark: &str) -> Result<()> {
    // One word for `ip -batch`, hence the quotes.
    batch(namespace, &[], &format!("link set dev lo alias \"{mark}\" up\n"))
}

/// The links of a namespace.
///
/// # Errors
/// If there is no such namespace.
pub fn links(namespace: &str) -> Result<Vec<Link>> {
    namespace::inside(namespace, || LinkSocket::open()?.all())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Network {
        let west = Interface {
            name: "west".into(),
            addresses: vec!["10.0.0.1/30".parse().unwrap(), "fd00::1/64".parse().unwrap()],
        };
        Network {
            loopback: vec!["fd00::a".parse().unwrap()],
            interfaces: vec![west],
            settings: vec!["sr tunsrc set fd00::a".into()],
            lines: vec![
                Line { families: &["-6"], words: "route replace default via fd00::2".into() },
                Line { families: &["-4", "-6"], words: "rule add pref 100 iif west lookup 100".into() },
            ],
            sysctls: Vec::new(),
        }
    }

    #[test]
    fn addresses_are_usable_at_once() {
        let text = network().addresses();
        let expected = "addr add fd00::a/128 dev lo nodad\naddr add 10.0.0.1/30 dev west\naddr add fd00::1/64 dev west nodad\nsr tunsrc set fd00::a\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn lines_go_by_family() {
        let network = network();
        assert_eq!(network.routes("-4"), "rule add pref 100 iif west lookup 100\n");
        assert_eq!(network.routes("-6").lines().count(), 2);
    }

    #[test]
    fn sysctls_of_interfaces_wait_for_them() {
        let network = network();
        assert!(network.names_interface("net.ipv4.conf.west.rp_filter"));
        assert!(
            !network.names_interface("net.ipv4.conf.westward.rp_filter")
                && !network.names_interface("net.core.somaxconn")
        );
    }

    #[test]
    fn batch_errors_name_the_line() {
        let error = HostError::Command {
            place: "host".into(),
            command: "ip -n x -batch -".into(),
            status: "exit status: 1".into(),
            output: "Error: bad.\nCommand failed -:2".into(),
            remedy: "".into(),
        };
        let text = name_line(error, "sg-x-y", "first\nsecond thing\n").to_string();
        assert!(text.contains("sg-x-y") && text.contains("`ip second thing`"), "{text}");
    }
}
