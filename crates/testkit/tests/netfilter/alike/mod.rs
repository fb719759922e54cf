//! Random packets through the kernel's iptables and through Segue's firewall, with the same file: files of ufw, docker and others
//! (crates/iptables/tests/data/stock), and rules with every option that is honoured. Each packet must be forwarded, dropped or
//! answered alike, and in the end all rules must have counted the same. What is not alike is listed in [`EXCEPTIONS`], by packet, rules
//! and a row of "Differences from netfilter" in docs/using/firewall.md.
//!
//! `SEGUE_NETFILTER_SECONDS=600` runs longer (15 by default and 40 in a long run, for all files together), `SEGUE_NETFILTER_SEED=7` begins with another seed.

mod exact;
mod exceptions;
mod headers;
mod packets;
mod router;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use segue_testkit::is_long;
use segue_testkit::node::Node;

use exceptions::{EXCEPTIONS, Exception, How, lengths, put_together_by_kernel};
use packets::{CLASSES, Class, Event, Family, Generator};
use router::{Counted, Kernel, Result, Router, counted, segue};

/// Files of other programs, and the interfaces that they call eth1 (eth0 is what they call so).
const STOCK: [(&str, &str); 7] = [
    ("docker", "docker0"),
    ("firewalld", "eth1"),
    ("kube-proxy", "eth1"),
    ("libvirt", "virbr1"),
    ("lxd", "lxdbr0"),
    ("shorewall", "eth1"),
    ("ufw", "eth1"),
];

/// Every option, most of them without verdict so that the rules behind it are met too.
const OPTIONS_V4: &str = "*filter
:FORWARD ACCEPT [0:0]
:scanned - [0:0]
:knocked - [0:0]
-A FORWARD -m conntrack --ctstate INVALID
-A FORWARD -m conntrack --ctstate NEW
-A FORWARD -m conntrack --ctstate ESTABLISHED
-A FORWARD -m conntrack --ctstate RELATED
-A FORWARD -m conntrack --ctstate UNTRACKED
-A FORWARD -m conntrack --ctstate NEW,DNAT
-A FORWARD -m conntrack ! --ctstate SNAT
-A FORWARD -m conntrack --ctdir ORIGINAL
-A FORWARD -m conntrack --ctdir REPLY
-A FORWARD -m state --state RELATED,ESTABLISHED
-A FORWARD -i eth0 -o eth1
-A FORWARD ! -i eth0
-A FORWARD -o eth+
-A FORWARD ! -o eth0
-A FORWARD -s 192.0.2.2/31
-A FORWARD ! -d 198.51.100.0/255.255.255.1
-A FORWARD -m iprange --src-range 192.0.2.2-192.0.2.3
-A FORWARD -m iprange ! --dst-range 198.51.100.3-198.51.100.4
-A FORWARD -p tcp -m tcp --dport 20:25
-A FORWARD -p tcp -m tcp ! --sport 1024:65535
-A FORWARD -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN
-A FORWARD -p tcp -m tcp ! --tcp-flags PSH,URG NONE
-A FORWARD -p tcp -m tcp --tcp-option 2
-A FORWARD -p tcp -m tcp ! --tcp-option 3
-A FORWARD -p udp -m udp --sport 53
-A FORWARD -p udp -m udp ! --dport 53:123
-A FORWARD -p sctp -m sctp --dport 80
-A FORWARD -p icmp -m icmp --icmp-type 8
-A FORWARD -p icmp -m icmp ! --icmp-type 3/3
-A FORWARD -p icmp -m icmp --icmp-type 3/4
-A FORWARD -p icmp -m icmp --icmp-type any
-A FORWARD -p tcp -m multiport --dports 22,80:90,443
-A FORWARD -p udp -m multiport ! --sports 53,123
-A FORWARD -p tcp -m multiport --ports 80,443
-A FORWARD ! -p tcp
-A FORWARD -p gre
-A FORWARD ! -f -m length --length 20:40
-A FORWARD -m length ! --length 60:100
-A FORWARD -m ttl --ttl-eq 64
-A FORWARD -m ttl --ttl-lt 64
-A FORWARD -m ttl --ttl-gt 64
-A FORWARD -m dscp --dscp 0x2e
-A FORWARD -m tos --tos 0x10/0x3f
-A FORWARD -m addrtype --dst-type UNICAST
-A FORWARD -m addrtype --dst-type LOCAL,MULTICAST
-A FORWARD -m addrtype ! --src-type BROADCAST
-A FORWARD -m addrtype --src-type ANYCAST
-A FORWARD -m mac --mac-source 02:00:00:00:01:02
-A FORWARD -p tcp -m multiport --ports 22,25 -m limit --limit 1/hour --limit-burst 7
-A FORWARD -p udp -m hashlimit --hashlimit-upto 1/hour --hashlimit-burst 3 --hashlimit-mode srcip,dstport --hashlimit-name a
-A FORWARD -p udp -m hashlimit --hashlimit-above 1/hour --hashlimit-burst 5 --hashlimit-mode dstip --hashlimit-name b --hashlimit-dstmask 31
-A FORWARD -p tcp -m tcp --dport 23 -m recent --set --name seen --mask 255.255.255.254 --rsource
-A FORWARD -p tcp -m recent --rcheck --name seen --mask 255.255.255.254 --rsource
-A FORWARD -p tcp -m recent ! --rcheck --seconds 3000 --hitcount 3 --name seen --mask 255.255.255.254 --rsource
-A FORWARD -p udp -m recent --set --name to --mask 255.255.255.255 --rdest
-A FORWARD -p udp -m recent --update --hitcount 9 --name to --mask 255.255.255.255 --rdest
-A FORWARD -p icmp -m recent --remove --name to --mask 255.255.255.255 --rsource -j knocked
-A FORWARD -p icmp -m icmp --icmp-type 13 -j REJECT --reject-with icmp-host-prohibited
-A FORWARD -p tcp -m tcp --dport 25 -j REJECT --reject-with tcp-reset
-A FORWARD -p udp -m udp --dport 123 -j REJECT --reject-with icmp-admin-prohibited
-A FORWARD -p tcp -m tcp --tcp-flags SYN,FIN SYN,FIN -g scanned
-A FORWARD -s 192.0.2.2/31 -d 198.51.100.3/32 -j REJECT
-A FORWARD -j MARK --set-xmark 0x5/0xff
-A FORWARD -m mark --mark 0x5/0xf -d 198.51.100.5/32 -p udp -j DROP
-A scanned -m mark ! --mark 0x1 -j DROP
-A knocked -j RETURN
COMMIT
";

fn options_v6() -> String {
    let renamed = OPTIONS_V4
        .replace("192.0.2.2/31", "2001:db8:1::2/127")
        .replace("198.51.100.0/255.255.255.1", "2001:db8:2::/ffff:ffff:ffff:ffff::1")
        .replace("192.0.2.2-192.0.2.3", "2001:db8:1::2-2001:db8:1::3")
        .replace("198.51.100.3-198.51.100.4", "2001:db8:2::3-2001:db8:2::4")
        .replace("198.51.100.3/32", "2001:db8:2::3/128")
        .replace("198.51.100.5/32", "2001:db8:2::5/128")
        .replace("--hashlimit-dstmask 31", "--hashlimit-dstmask 127")
        .replace("255.255.255.254", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe")
        .replace("255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
        .replace("-p icmp -m icmp --icmp-type any\n", "-p ipv6-icmp -m icmp6 --icmpv6-type 1/4\n")
        .replace("-p icmp -m icmp --icmp-type 8\n", "-p ipv6-icmp -m icmp6 --icmpv6-type 128\n")
        .replace("-p icmp -m icmp ! --icmp-type 3/3\n", "-p ipv6-icmp -m icmp6 ! --icmpv6-type 1/3\n")
        .replace("-p icmp -m icmp --icmp-type 3/4\n", "-p ipv6-icmp -m icmp6 --icmpv6-type 2\n")
        .replace(
            "-p icmp -m icmp --icmp-type 13 -j REJECT --reject-with icmp-host-prohibited",
            "-p ipv6-icmp -m icmp6 --icmpv6-type 139 -j REJECT --reject-with icmp6-addr-unreachable",
        )
        .replace("icmp-admin-prohibited", "icmp6-adm-prohibited")
        .replace("-p icmp ", "-p ipv6-icmp ")
        .replace("-m ttl --ttl", "-m hl --hl")
        .replace("! -f -m length", "-m length")
        .replace("-m addrtype ! --src-type BROADCAST", "-m addrtype ! --src-type MULTICAST")
        .replace("--dst-type LOCAL,MULTICAST", "--dst-type LOCAL,ANYCAST");
    let more = "-A FORWARD -m rt
-A FORWARD -m rt --rt-type 0
-A FORWARD -m rt ! --rt-type 2 --rt-len 24
-A FORWARD -m rt --rt-segsleft 0:1
-A FORWARD -m frag --fragfirst
-A FORWARD -m frag --fraglast
-A FORWARD -p ipv6-icmp -m icmp6 --icmpv6-type 139 ";
    renamed.replacen("-A FORWARD -p ipv6-icmp -m icmp6 --icmpv6-type 139 ", more, 1)
}

/// What both are given: the file for Segue, and its table `filter` for the kernel.
struct Case {
    name: String,
    family: Family,
    file: String,
    filter: String,
    /// Some rule looks at connections, so that the kernel tracks them, and puts fragments together before the rules.
    connections: bool,
}

fn stock(name: &str, inside: &str, family: Family) -> Case {
    let ending = if family == Family::Ipv4 { "v4" } else { "v6" };
    let name = format!("{name}.{ending}");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../iptables/tests/data/stock").join(&name);
    let file = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // No token comes back while a test runs, so that two runs at different speeds are alike.
    let file = file.replace(inside, "eth1").replace("/sec ", "/hour ").replace("/min ", "/hour ");
    case(name, family, file)
}

fn case(name: String, family: Family, file: String) -> Case {
    let filter = file.split("*filter\n").nth(1).and_then(|rest| rest.split("COMMIT\n").next()).expect("*filter");
    // The kernel's own packets, of which its answers are, are nobody's business here.
    let lines = filter
        .lines()
        .filter(|line| !["-A INPUT ", "-A OUTPUT ", ":INPUT ", ":OUTPUT "].iter().any(|start| line.starts_with(start)));
    let filter = lines.fold("*filter\n".to_owned(), |text, line| text + &lowered_hops(line) + "\n") + "COMMIT\n";
    let connections = ["-m conntrack ", "-m state "].iter().any(|word| filter.contains(word));
    Case { name, family, file, filter, connections }
}

/// The kernel lowers the hop limit in front of FORWARD: row `hop-limit`.
fn lowered_hops(line: &str) -> String {
    let mut before = "";
    let words = line.split(' ').map(|word| {
        let hops = before.starts_with("--ttl-") || before.starts_with("--hl-");
        before = word;
        if hops { (word.parse::<u8>().expect("a number") - 1).to_string() } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn cases() -> Vec<Case> {
    let families = [Family::Ipv4, Family::Ipv6];
    let mut cases: Vec<Case> =
        STOCK.iter().flat_map(|(name, inside)| families.map(|family| stock(name, inside, family))).collect();
    for (name, family, file) in [("IPv4", Family::Ipv4, OPTIONS_V4.to_owned()), ("IPv6", Family::Ipv6, options_v6())] {
        let alone = |line: &&str| !line.contains("-m conntrack ") && !line.contains("-m state ");
        let stateless: String = file.lines().filter(alone).map(|line| format!("{line}\n")).collect();
        cases.push(case(format!("every option, {name}"), family, file));
        cases.push(case(format!("every option without connections, {name}"), family, stateless));
    }
    cases
}

/// Addresses behind both sides: hosts of both networks, and what the rules name.
fn hosts(case: &Case) -> [Vec<u128>; 2] {
    type Own = fn(u8, u8) -> u128;
    type Behind = fn(&str) -> Option<u128>;
    let (own, behind): (Own, Behind) = match case.family {
        Family::Ipv4 => (
            |side, host| {
                u128::from(u32::from_be_bytes(if side == 0 { [192, 0, 2, host] } else { [198, 51, 100, host] }))
            },
            |text| text.parse::<std::net::Ipv4Addr>().ok().map(|address| address.to_bits().into()),
        ),
        Family::Ipv6 => (
            |side, host| 0x2001_0db8_u128 << 96 | u128::from(side + 1) << 80 | u128::from(host),
            |text| text.parse::<std::net::Ipv6Addr>().ok().map(std::net::Ipv6Addr::to_bits),
        ),
    };
    let mut hosts = [0, 1].map(|side| (2..=5).map(|host| own(side, host)).collect::<Vec<_>>());
    for word in case.filter.split_whitespace() {
        let Some((address, length)) = word.split_once('/') else { continue };
        let Some(address) = behind(address) else { continue };
        let inside = ["172.17.", "192.168.123.", "10.158.7.", "10.96.", "10.244.", "203.0.113."];
        let inside6 = ["2001:db8:d:", "2001:db8:ca2:", "fd42:", "fd00:10:", "2001:db8:80:"];
        if inside.iter().chain(&inside6).any(|net| word.starts_with(net)) {
            let host = if length == "32" || length == "128" { 0 } else { 7 };
            hosts[1].push(address + host);
        }
    }
    // From outside of all that the rules know.
    hosts[0].push(match case.family {
        Family::Ipv4 => u128::from(u32::from_be_bytes([100, 64, 7, 9])),
        Family::Ipv6 => 0x2001_0db8_00ff_u128 << 80 | 9,
    });
    hosts
}

fn ports(case: &Case) -> Vec<u16> {
    let mut ports = BTreeSet::from([22, 25, 53, 80, 123, 443, 8080]);
    for words in case.filter.split_whitespace().collect::<Vec<_>>().windows(2) {
        if words[0].ends_with("port") || words[0].ends_with("ports") {
            ports.extend(words[1].split([',', ':']).filter_map(|port| port.parse::<u16>().ok()));
        }
    }
    ports.into_iter().collect()
}

/// What the kernel and Segue make of an answer may differ in who sends it, and in the hop limit that it quotes (row `hop-limit`): type,
/// code, addressee and the rest of what is quoted count.
fn comparable(result: &Result, family: Family) -> Result {
    let answer = |packet: &Vec<u8>| {
        let (at, protocol) = match family {
            Family::Ipv4 => (usize::from(packet[0] & 15) * 4, packet[9]),
            Family::Ipv6 => (40, packet[6]),
        };
        let destination = if family == Family::Ipv4 { &packet[16..20] } else { &packet[24..40] };
        match protocol {
            6 => [destination, &packet[at..at + 14]].concat(),
            _ => {
                let mut quoted = packet[(at + 8).min(packet.len())..].to_vec();
                quoted.truncate(if family == Family::Ipv4 { 28 } else { 48 });
                let (hops, sum) = if family == Family::Ipv4 { (8, 10..12) } else { (7, 0..0) };
                if quoted.len() > 12 {
                    quoted[hops] = 0;
                    quoted[sum].fill(0);
                }
                [destination, &packet[at..at + 2], &quoted].concat()
            }
        }
    };
    let mut on = result.on.clone();
    on.sort();
    Result { back: result.back.iter().map(answer).collect(), on }
}

fn hexadecimal(packets: &[Vec<u8>]) -> String {
    let one = |packet: &Vec<u8>| packet.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
    packets.iter().map(one).collect::<Vec<_>>().join(" | ")
}

/// What a rule has counted more in the kernel than here, as documented: packets and octets, by chain and place in it.
type Excused = BTreeMap<(String, usize), (i64, i64)>;

/// The rules of a chain, as text.
fn rules_of<'c>(case: &'c Case, chain: &str) -> impl Iterator<Item = &'c str> + use<'c> {
    let start = format!("-A {chain} ");
    case.filter.lines().filter(move |line| line.starts_with(&start))
}

/// The rules that counted differently, as text.
fn differing(case: &Case, kernel: &Counted, segue: &Counted, excused: &Excused) -> Vec<String> {
    let mut found = Vec::new();
    for (chain, ours) in segue {
        let theirs = kernel.get(chain).cloned().unwrap_or_default();
        assert_eq!((rules_of(case, chain).count(), theirs.len()), (ours.len(), ours.len()), "{}: {chain}", case.name);
        for (place, ((rule, ours), theirs)) in rules_of(case, chain).zip(ours).zip(theirs).enumerate() {
            let (packets, octets) = excused.get(&(chain.clone(), place)).copied().unwrap_or_default();
            if (ours.0.wrapping_add_signed(packets), ours.1.wrapping_add_signed(octets)) != theirs {
                found.push(format!("    {rule}\n      the kernel {theirs:?}, Segue {ours:?}\n"));
            }
        }
    }
    found
}

/// Row `fragment-length`: the kernel's rules have counted a datagram, Segue's its first fragment, and those alike but for `-m length`.
fn excuse_lengths(
    case: &Case,
    event: &Event,
    before: &[Counted; 2],
    after: &[Counted; 2],
    excused: &mut Excused,
) -> std::result::Result<(), String> {
    let (whole, first) = lengths(event, case.family);
    for (chain, ours) in &after[1] {
        for (place, rule) in rules_of(case, chain).enumerate() {
            let moved = |counted: [&Counted; 2]| {
                let [old, new] = counted.map(|counted| counted[chain][place]);
                (new.0 - old.0, new.1 - old.1)
            };
            let (kernel, segue) = (moved([&before[0], &after[0]]), moved([&before[1], &after[1]]));
            let same = kernel.0 == segue.0 || rule.contains("-m length ");
            if !same || kernel.1 != kernel.0 * whole || segue.1 != segue.0 * first || ours.len() <= place {
                return Err(format!("    {rule}\n      the kernel {kernel:?}, Segue {segue:?}\n"));
            }
            let sum = excused.entry((chain.clone(), place)).or_default();
            sum.0 += kernel.0.cast_signed() - segue.0.cast_signed();
            sum.1 += kernel.1.cast_signed() - segue.1.cast_signed();
        }
    }
    Ok(())
}

/// The kernel's router and Segue's, with the same rules.
struct Pair<'r> {
    case: &'r Case,
    kernel: &'r Kernel,
    router: &'r Router,
    node: Node<'r>,
    excused: Excused,
}

impl Pair<'_> {
    fn counted(&self) -> [Counted; 2] {
        [self.kernel.counted(), counted(&self.node)]
    }

    fn differing(&self) -> Vec<String> {
        differing(self.case, &self.kernel.counted(), &counted(&self.node), &self.excused)
    }

    fn send(&self, event: &Event) -> [Result; 2] {
        let routers = [&self.kernel.router, self.router];
        routers.map(|router| router.send(event.side, self.case.family, &event.packets))
    }

    fn told(&self, event: &Event, [kernel, segue]: &[Result; 2], rules: &[String]) -> String {
        let Event { class, side, packets } = event;
        let show =
            |result: &Result| format!("on: {}\n    back: {}", hexadecimal(&result.on), hexadecimal(&result.back));
        let outcomes = self.node.counters().into_iter().map(|(name, (packets, _))| format!("{name} {packets}; "));
        format!(
            "{class:?} by eth{side}: {}\n  the kernel: {}\n  Segue: {}\n  rules:\n{}  all outcomes: {}\n",
            hexadecimal(packets),
            show(kernel),
            show(segue),
            rules.concat(),
            outcomes.collect::<String>()
        )
    }

    /// But for what is documented.
    fn alike(&self, event: &Event, [theirs, ours]: &[Result; 2]) -> bool {
        let (mut theirs, mut ours) = (theirs.clone(), ours.clone());
        for exception in EXCEPTIONS.iter().filter(|exception| (exception.applies)(self.case, event)) {
            if let How::View(view) = exception.how {
                view(event, self.case.family, &mut theirs, &mut ours);
            }
        }
        comparable(&theirs, self.case.family) == comparable(&ours, self.case.family)
    }

    /// Plays an event that is not [`How::Apart`]. What became of it, if it is alike but for what is documented; else all about it.
    fn play(&mut self, event: &Event, each: bool) -> std::result::Result<[Result; 2], String> {
        let together = put_together_by_kernel(self.case, event);
        let before = together.then(|| self.counted());
        let mut results = self.send(event);
        while !self.alike(event, &results) {
            let [theirs, ours] = &mut results;
            let more = [self.kernel.router.later(event.side, theirs), self.router.later(event.side, ours)];
            if more == [false; 2] {
                return Err(self.told(event, &results, &self.differing()));
            }
        }
        if let Some(before) = before {
            let after = self.counted();
            excuse_lengths(self.case, event, &before, &after, &mut self.excused)
                .map_err(|rule| self.told(event, &results, &[rule]))?;
        }
        if each {
            let rules = self.differing();
            if !rules.is_empty() {
                return Err(self.told(event, &results, &rules));
            }
        }
        Ok(results)
    }
}

fn apart(case: &Case, event: &Event) -> Option<&'static Exception> {
    EXCEPTIONS.iter().find(|exception| matches!(exception.how, How::Apart(_)) && (exception.applies)(case, event))
}

/// Plays events until its share of time is over or something differs. `each`: rules are compared after each event. Returns how many were played.
fn play(
    case: &Case,
    seed: u64,
    classes: &[Class],
    most: usize,
    share: Duration,
    each: bool,
) -> std::result::Result<Vec<usize>, String> {
    let (kernel, router) = (Kernel::new(case.family, &case.filter), Router::new());
    let node = segue(&router, case.family, &case.file, true);
    let mut pair = Pair { case, kernel: &kernel, router: &router, node, excused: Excused::new() };
    let mut generator = Generator::new(seed, case.family, hosts(case), ports(case));
    let (mut seen, mut kept) = (vec![0; 3], Vec::new());
    let until = Instant::now() + share;
    let mut played = 0;
    for number in 0..most {
        if number > 20 && Instant::now() > until {
            break;
        }
        played = number + 1;
        let class = *generator.random.pick(classes);
        let event = generator.event(class);
        if let Some(exception) = apart(case, &event) {
            kept.push((number, exception, event));
            continue;
        }
        let [theirs, _] =
            pair.play(&event, each).map_err(|text| format!("{}, seed {seed}, event {number}, {text}", case.name))?;
        seen[if !theirs.on.is_empty() {
            0
        } else if !theirs.back.is_empty() {
            1
        } else {
            2
        }] += 1;
    }
    if !each && !pair.differing().is_empty() {
        // Once more, to see which it was.
        drop(pair);
        drop((kernel, router));
        play(case, seed, classes, played, Duration::from_secs(600), true)?;
        return Err(format!("{}, seed {seed}: rules counted differently, but not a second time", case.name));
    }
    for (number, exception, event) in kept.into_iter().take(50) {
        let results = pair.send(&event);
        if let How::Apart(documented) = exception.how
            && !documented(case.family, &results[0], &results[1])
        {
            let text = pair.told(&event, &results, &[]);
            return Err(format!("{}, seed {seed}, event {number}, not as {}, {text}", case.name, exception.row));
        }
    }
    Ok(seen)
}

fn variable(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}: no number")))
}

fn classes(family: Family) -> Vec<Class> {
    let chosen = std::env::var("SEGUE_NETFILTER_CLASS").ok();
    let wanted =
        |class: &Class| chosen.as_ref().is_none_or(|names| names.split(',').any(|name| name == format!("{class:?}")));
    let classes: Vec<_> = CLASSES.into_iter().filter(|class| class.fits(family)).collect();
    let wanted: Vec<_> = classes.iter().copied().filter(wanted).collect();
    if wanted.is_empty() { classes } else { wanted }
}

#[test]
#[ignore = "needs root"]
fn random_packets_meet_what_they_would_meet_in_iptables() {
    let cases = cases();
    let seconds = variable("SEGUE_NETFILTER_SECONDS", if is_long() { 40 } else { 15 });
    let only = std::env::var("SEGUE_NETFILTER_CASE").unwrap_or_default();
    let first = variable("SEGUE_NETFILTER_SEED", 1);
    let most = variable("SEGUE_NETFILTER_EVENTS", 400) as usize;
    let chosen: Vec<&Case> = cases.iter().filter(|case| case.name.contains(&only)).collect();
    let share = Duration::from_secs(seconds) / chosen.len() as u32;
    let (mut different, mut all) = (Vec::new(), vec![0; 3]);
    for case in chosen {
        let end = Instant::now() + share;
        for seed in first.. {
            match play(case, seed, &classes(case.family), most, share, false) {
                Ok(seen) => {
                    println!(
                        "{}, seed {seed}: {} forwarded, {} answered, {} dropped",
                        case.name, seen[0], seen[1], seen[2]
                    );
                    all.iter_mut().zip(seen).for_each(|(all, seen)| *all += seen);
                }
                Err(text) => {
                    println!("{text}");
                    different.push(text);
                    break;
                }
            }
            if Instant::now() > end {
                break;
            }
        }
    }
    assert!(different.is_empty(), "{} files differ:\n{}", different.len(), different.concat());
    println!("together {} forwarded, {} answered, {} dropped", all[0], all[1], all[2]);
    assert!(!only.is_empty() || all.iter().all(|count| *count > 100), "{all:?}");
}

/// Each exception is in the documentation, by name.
#[test]
fn exceptions_are_documented() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/using/firewall.md");
    let text = std::fs::read_to_string(path).expect("docs/using/firewall.md");
    let section = text.split("## Differences from netfilter").nth(1).expect("the section");
    let section = section.split("\n## ").next().expect("the section");
    for Exception { row, .. } in &EXCEPTIONS {
        assert!(section.contains(&format!("| `{row}` |")), "{row}");
    }
}

/// No exception is there that no packet needs: a packet that it names meets something else in the kernel than in Segue.
#[test]
#[ignore = "needs root"]
fn exceptions_are_differences() {
    let cases = cases();
    for exception in &EXCEPTIONS {
        let differs = cases
            .iter()
            .filter(|case| case.name.starts_with("every") || case.name.starts_with("libvirt"))
            .filter(|case| exception.class.fits(case.family))
            .any(|case| {
                let (kernel, router) = (Kernel::new(case.family, &case.filter), Router::new());
                let node = segue(&router, case.family, &case.file, true);
                let pair = Pair { case, kernel: &kernel, router: &router, node, excused: Excused::new() };
                let mut generator = Generator::new(1, case.family, hosts(case), ports(case));
                let events = (0..100).map(|_| generator.event(exception.class));
                events.filter(|event| (exception.applies)(case, event)).take(20).any(|event| {
                    let [theirs, ours] = pair.send(&event).map(|result| comparable(&result, case.family));
                    theirs != ours || !pair.differing().is_empty()
                })
            });
        assert!(differs, "{}: nothing differs", exception.row);
    }
}
