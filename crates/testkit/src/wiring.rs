//! Many links at once. `ip` costs some milliseconds each time that it is started, and a network of the tests has dozens of links.

use segue_host::{Run, namespace};

use crate::netns::{End, Netns};
use crate::offloads::suit_xdp;

/// Links to be made, and what `ip` is to do in namespaces then.
#[derive(Debug, Default)]
pub struct Wiring {
    links: String,
    /// Namespaces' names, and what is in them.
    ends: Vec<(String, String)>,
    lines: Vec<(String, String)>,
}

impl Wiring {
    /// A veth pair, as [`crate::netns::veth`] makes it.
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

    /// Makes it all.
    ///
    /// # Panics
    ///
    /// When `ip` or the kernel refuses something.
    pub fn lay(self) {
        fed(Run::new("ip", ["-batch", "-"]), self.links);
        // GRO on all ends before any comes up: that is when a veth learns whether XDP may redirect to its peer.
        let names = self.ends.iter().map(|(netns, name)| (netns, name.clone()));
        for (netns, names) in by_namespace(names) {
            let set = namespace::inside(netns, || suit_xdp(names.lines()));
            set.unwrap_or_else(|error| panic!("{error}")).unwrap_or_else(|error| panic!("{names}{error}"));
        }
        let up = self.ends.iter().map(|(netns, name)| (netns, format!("link set dev {name} up")));
        let lines = self.lines.iter().map(|(netns, line)| (netns, line.clone()));
        for (netns, lines) in by_namespace(up).into_iter().chain(by_namespace(lines)) {
            fed(Run::new("ip", ["-batch", "-"]).inside(netns), lines);
        }
    }
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
