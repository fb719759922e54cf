//! Rule sets of the scenarios `firewall-*`, as each engine reads them: all but the last rule name other hosts than the
//! packets are from and to, and the last one names theirs ("SERA: SEgment Routing Aware Firewall for Service Function
//! Chaining scenarios", section VI.B).

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use segue_host::Run;

use crate::error::{Error, Result};
use crate::netns::Namespace;
use crate::topology::{HEADEND, INNER_DESTINATION, INNER_SOURCE, SID};

/// What the last rule does with the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Last {
    /// Drops them: what the paper measures
    Drop,
    /// Accepts them: they are forwarded
    Accept,
}

/// Which addresses a rule compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// Source and destination.
    Two,
    /// Those of the outermost header, and those of the inner packet: the paper's experiments 4 and 5.
    Four {
        /// Outermost source.
        outer_source: Ipv6Addr,
        /// Outermost destination, unless any will do.
        outer_destination: Option<Ipv6Addr>,
    },
}

impl Compared {
    /// For packets behind an outer header of the headend.
    pub const ENCAPSULATED: Self = Self::Four { outer_source: HEADEND, outer_destination: Some(SID) };
    /// The same, to any SID.
    pub const ENCAPSULATED_AT_ANY_SID: Self = Self::Four { outer_source: HEADEND, outer_destination: None };
    /// For packets with an inserted SRH.
    pub const INSERTED: Self = Self::Four { outer_source: INNER_SOURCE, outer_destination: Some(SID) };
}

/// Hosts that no packet is from or to. `index` below 2^32.
fn others(index: usize) -> [Ipv6Addr; 2] {
    let (high, low) = ((index >> 16) as u16, index as u16);
    [Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, high, low), Ipv6Addr::new(0x2001, 0xdb8, 0xeeee, 0, 0, 0, high, low)]
}

/// Source and destination of each of `count` rules.
fn hosts(count: usize) -> impl Iterator<Item = [Ipv6Addr; 2]> {
    (1..count).map(others).chain([[INNER_SOURCE, INNER_DESTINATION]])
}

/// As `ip6tables-save` writes them.
#[must_use]
pub fn save(count: usize, compared: Compared, last: Last) -> String {
    let mut text = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n".to_owned();
    for (index, [source, destination]) in hosts(count).enumerate() {
        let target = if last == Last::Accept && index + 1 == count { "ACCEPT" } else { "DROP" };
        let _ = match compared {
            Compared::Two => writeln!(text, "-A FORWARD -s {source}/128 -d {destination}/128 -j {target}"),
            Compared::Four { outer_source, outer_destination } => {
                let sid = outer_destination.map(|sid| format!("-d {sid}/128 ")).unwrap_or_default();
                writeln!(
                    text,
                    "-A FORWARD -s {outer_source}/128 {sid}-m srh --inner-src {source}/128 --inner-dst {destination}/128 -j {target}"
                )
            }
        };
    }
    text + "COMMIT\n"
}

/// Name of the nft counter of the last rule.
const COUNTER: &str = "last";

/// As `nft -f` reads them. Only the last rule counts: nft, unlike iptables, need not count in all of them.
#[must_use]
pub fn nft(count: usize, last: Last) -> String {
    let mut text = format!(
        "table ip6 bench\ndelete table ip6 bench\ntable ip6 bench {{\ncounter {COUNTER} {{ }}\nchain forward {{\ntype filter hook \
         forward priority filter; policy accept;\n"
    );
    for (index, [source, destination]) in hosts(count).enumerate() {
        let verdict = match (index + 1 == count, last) {
            (false, _) => "drop".to_owned(),
            (true, Last::Drop) => format!("counter name \"{COUNTER}\" drop"),
            (true, Last::Accept) => format!("counter name \"{COUNTER}\" accept"),
        };
        let _ = writeln!(text, "ip6 saddr {source} ip6 daddr {destination} {verdict}");
    }
    text + "}\n}\n"
}

/// Gives `text` to a program on its standard input, in the namespace.
fn feed(namespace: &Namespace, program: &str, arguments: &[&str], text: String) -> Result<()> {
    Run::new(program, arguments).inside(namespace.name()).input(text).text()?;
    Ok(())
}

const IP6TABLES: &str = "ip6tables-legacy";

/// Replaces the namespace's ip6tables rules.
///
/// # Errors
/// If ip6tables refuses them.
pub fn lay_ip6tables(namespace: &Namespace, count: usize, last: Last) -> Result<()> {
    feed(namespace, &format!("{IP6TABLES}-restore"), &[], save(count, Compared::Two, last))
}

/// Replaces the namespace's nft rules.
///
/// # Errors
/// If nft refuses them.
pub fn lay_nft(namespace: &Namespace, count: usize, last: Last) -> Result<()> {
    feed(namespace, "nft", &["-f", "-"], nft(count, last))
}

/// Packets that the last of `count` ip6tables rules has counted.
///
/// # Errors
/// If ip6tables does not say.
pub fn counted_by_ip6tables(namespace: &Namespace, count: usize) -> Result<u64> {
    let number = count.to_string();
    let run = Run::new(IP6TABLES, ["-n", "-v", "-x", "-L", "FORWARD", &number]);
    let text = run.inside(namespace.name()).text()?;
    text.split_whitespace().next().and_then(|packets| packets.parse().ok()).ok_or_else(|| unreadable(IP6TABLES, &text))
}

/// Packets that the last nft rule has counted.
///
/// # Errors
/// If nft does not say.
pub fn counted_by_nft(namespace: &Namespace) -> Result<u64> {
    let text = Run::new("nft", ["list", "counter", "ip6", "bench", COUNTER]).inside(namespace.name()).text()?;
    let packets = text.split_whitespace().skip_while(|word| *word != "packets").nth(1);
    packets.and_then(|packets| packets.parse().ok()).ok_or_else(|| unreadable("nft", &text))
}

fn unreadable(program: &str, text: &str) -> Error {
    Error::Answer { command: program.into(), message: format!("no packet counter in its answer: {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_another_one_and_only_the_last_names_the_packets() {
        for (count, compared) in [(1, Compared::Two), (512, Compared::Two), (300, Compared::ENCAPSULATED)] {
            let text = save(count, compared, Last::Accept);
            let rules: std::collections::BTreeSet<&str> = text.lines().filter(|line| line.starts_with("-A")).collect();
            assert_eq!(rules.len(), count);
            let own = format!("{INNER_SOURCE}/128");
            let matching: Vec<_> = rules.iter().filter(|rule| rule.contains(&own)).collect();
            assert!(matching.len() == 1 && matching[0].ends_with("ACCEPT"), "{matching:?}");
        }
        assert_eq!(nft(512, Last::Drop).matches("ip6 saddr").count(), 512);
        assert_eq!(nft(70_000, Last::Drop).matches("counter name").count(), 1);
    }
}
