//! What iptables knows and Segue refuses, with the reason and what to do: a rule is never ignored.

use super::syntax::Family;

/// Name, reason, remedy.
type Refusal = (&'static str, &'static str, &'static str);

const NO_SOCKET: &str = "the packet is forwarded: no socket or process of this node is behind it";
const NO_TABLE: &str = "it needs the routing table, which rules do not ask";
const NO_COUNT: &str = "it keeps counts over packets that the data plane does not keep";
const NO_PAYLOAD: &str = "rules do not look into the payload";
const NO_TRACK: &str = "connection tracking here has states and directions, and nothing else of a connection";
const NO_CHANGE: &str = "rules decide about packets and do not rewrite them";
const NO_NAT: &str = "there is no address translation in this data plane";
const NO_CONTROL: &str = "connections are tracked by configuration, not by rules";

const LEAVE_OUT: &str = "leave the rule out, or keep it in a kernel firewall";
const BY_ADDRESS: &str = "match on addresses or interfaces instead";

const MATCHES: &[Refusal] = &[
    ("ah", "SPIs are not looked at", "match on -p ah alone"),
    ("bpf", "foreign BPF code is not run inside the data plane", LEAVE_OUT),
    ("cgroup", NO_SOCKET, BY_ADDRESS),
    ("cluster", "it shares packets between nodes, which anycast SIDs and ECMP do here", LEAVE_OUT),
    ("connbytes", NO_TRACK, LEAVE_OUT),
    ("connlabel", NO_TRACK, "match on --ctstate or a mark"),
    ("connlimit", "connections are not counted by address", "use hashlimit on --ctstate NEW"),
    ("connmark", NO_TRACK, "match on --mark"),
    ("cpu", "a rule means the same on every CPU", "leave the match out"),
    ("dccp", "DCCP's types and options are not looked at", "match on ports with -m multiport"),
    ("devgroup", "groups of interfaces are not known here", "name the interfaces with -i, + for all that begin alike"),
    ("dst", "options of the Destination Options header are not looked at", LEAVE_OUT),
    ("ecn", "ECN bits of TCP are not looked at", "match on -m tos --tos VALUE/0x03 for the bits of the IP header"),
    ("esp", "SPIs are not looked at", "match on -p esp alone"),
    ("eui64", "an interface identifier is not compared with a MAC address", "match on -m mac and -s"),
    ("hbh", "options of the Hop-by-Hop header are not looked at", LEAVE_OUT),
    ("helper", "connection tracking here has no helpers", "match on ports"),
    ("ipcomp", "SPIs are not looked at", "match on -p ipcomp alone"),
    ("ipv6header", "the list of extension headers is not kept", "match on -m frag or -m srh"),
    ("ipvs", "there is no IPVS here", LEAVE_OUT),
    ("l2tp", NO_PAYLOAD, "match on -p l2tp or the UDP port"),
    ("mh", "types of the Mobility header are not looked at", "match on -p mobility-header alone"),
    ("nfacct", "every rule has counters of its own", "read the rule's counters"),
    ("osf", "operating systems are not guessed", LEAVE_OUT),
    ("owner", NO_SOCKET, BY_ADDRESS),
    ("physdev", "there is no bridge between the ports of this data plane", "match on -i and -o"),
    ("pkttype", "the frame's kind is not kept for the rules", "match on -m addrtype --dst-type MULTICAST or on -d"),
    ("policy", "IPsec policies are not consulted", LEAVE_OUT),
    ("quota", NO_COUNT, "use limit or hashlimit"),
    ("rateest", NO_COUNT, "use limit or hashlimit"),
    ("realm", NO_TABLE, BY_ADDRESS),
    ("recent", NO_COUNT, "use hashlimit with --hashlimit-mode srcip"),
    ("rpfilter", NO_TABLE, "write the prefixes of each interface with -i and -s"),
    ("rt", "other routing headers than the SRH are not looked at", "match on -m srh for segment routing"),
    ("socket", NO_SOCKET, BY_ADDRESS),
    ("statistic", "packets are not picked by chance or number", "use limit or hashlimit"),
    ("string", NO_PAYLOAD, "send such traffic to a function of the chain that does"),
    ("tcpmss", "values of TCP options are not looked at", "match on --tcp-option 2 for the option itself"),
    ("time", "rules do not change with the time of day", "apply another file at that time"),
    ("u32", NO_PAYLOAD, "match on the field by its own name"),
];

const TARGETS: &[Refusal] = &[
    ("AUDIT", "there is no audit log", "use LOG or NFLOG"),
    ("CHECKSUM", NO_CHANGE, "leave the rule out: checksums are complete here"),
    ("CLASSIFY", NO_CHANGE, "use MARK"),
    ("CLUSTERIP", NO_CHANGE, LEAVE_OUT),
    ("CONNMARK", NO_TRACK, "use MARK"),
    ("CONNSECMARK", NO_TRACK, LEAVE_OUT),
    ("CT", NO_CONTROL, LEAVE_OUT),
    ("DNAT", NO_NAT, "send such traffic through a NAT function of the chain"),
    ("DNPT", NO_NAT, "send such traffic through a NAT function of the chain"),
    ("DSCP", NO_CHANGE, "set it where the traffic is classified"),
    ("ECN", NO_CHANGE, LEAVE_OUT),
    ("HL", NO_CHANGE, LEAVE_OUT),
    ("HMARK", "marks are not computed from hashes", "use MARK"),
    ("IDLETIMER", NO_COUNT, LEAVE_OUT),
    ("LED", "there is no lamp in the data plane", LEAVE_OUT),
    ("MASQUERADE", NO_NAT, "send such traffic through a NAT function of the chain"),
    ("NETMAP", NO_NAT, "send such traffic through a NAT function of the chain"),
    ("NFQUEUE", "no program is asked for a verdict", "send such traffic to a function of the chain, or use NFLOG"),
    ("NOTRACK", NO_CONTROL, LEAVE_OUT),
    ("QUEUE", "no program is asked for a verdict", "send such traffic to a function of the chain, or use NFLOG"),
    ("RATEEST", NO_COUNT, LEAVE_OUT),
    ("REDIRECT", NO_NAT, "send such traffic through a NAT function of the chain"),
    ("SECMARK", NO_SOCKET, LEAVE_OUT),
    ("SET", "sets are not changed by packets", "use hashlimit"),
    ("SNAT", NO_NAT, "send such traffic through a NAT function of the chain"),
    ("SNPT", NO_NAT, "send such traffic through a NAT function of the chain"),
    ("SYNPROXY", "connections are not answered for others", "use hashlimit on --syn"),
    ("TCPMSS", NO_CHANGE, "set the MTU of the links instead"),
    ("TCPOPTSTRIP", NO_CHANGE, LEAVE_OUT),
    ("TEE", "packets are not doubled by rules", "use NFLOG, or `segue capture`"),
    ("TOS", NO_CHANGE, "set it where the traffic is classified"),
    ("TPROXY", NO_SOCKET, LEAVE_OUT),
    ("TRACE", "rules are not traced one by one", "use `segue firewall explain`"),
    ("TTL", NO_CHANGE, LEAVE_OUT),
    ("ULOG", "it was removed from the kernel", "use NFLOG"),
];

/// Targets that are honoured.
pub(super) const HONOURED_TARGETS: &[&str] = &["ACCEPT", "DROP", "LOG", "MARK", "NFLOG", "REJECT", "RETURN", "SEG6"];

/// Matches that are refused, for the documentation's test.
pub fn refused_matches() -> impl Iterator<Item = &'static str> {
    MATCHES.iter().map(|(name, ..)| *name)
}

/// Targets that are refused, for the documentation's test.
pub fn refused_targets() -> impl Iterator<Item = &'static str> {
    TARGETS.iter().map(|(name, ..)| *name)
}

/// Why a match is refused, and what to do.
pub(super) fn match_reason(name: &str, family: Family) -> Option<(String, String)> {
    let other = match (name, family) {
        ("icmp" | "ttl", Family::Ipv6) => Some(("IPv4", if name == "ttl" { "-m hl" } else { "-m icmp6" })),
        ("icmp6" | "icmpv6" | "hl", Family::Ipv4) => Some(("IPv6", if name == "hl" { "-m ttl" } else { "-m icmp" })),
        ("frag", Family::Ipv4) => Some(("IPv6", "-f")),
        ("srh", Family::Ipv4) => Some(("IPv6", "a file for ip6tables")),
        _ => None,
    };
    if let Some((its, instead)) = other {
        return Some((format!("this match is for {its} only"), format!("use {instead}")));
    }
    let found = MATCHES.iter().find(|(known, ..)| *known == name)?;
    Some((format!("the match {name} is not honoured: {}", found.1), found.2.to_owned()))
}

/// Why a target is refused, and what to do.
pub(super) fn target_reason(name: &str) -> Option<(String, String)> {
    let found = TARGETS.iter().find(|(known, ..)| *known == name)?;
    Some((format!("the target {name} is not honoured: {}", found.1), found.2.to_owned()))
}

/// Whether this is the name of a target of iptables, honoured or not: no chain may be called so.
pub(super) fn is_target(name: &str) -> bool {
    HONOURED_TARGETS.contains(&name) || TARGETS.iter().any(|(known, ..)| *known == name)
}

/// The match that has an option of this name, for the remedy of an unknown option.
pub(super) fn match_with_option(option: &str) -> Option<&'static str> {
    Some(match option {
        "--sport" | "--dport" | "--source-port" | "--destination-port" => "-p tcp, udp or sctp",
        "--tcp-flags" | "--syn" | "--tcp-option" => "-p tcp",
        "--sports" | "--dports" | "--ports" | "--source-ports" | "--destination-ports" => "-m multiport",
        "--icmp-type" => "-p icmp",
        "--icmpv6-type" => "-p ipv6-icmp",
        "--src-range" | "--dst-range" => "-m iprange",
        "--state" => "-m state",
        "--ctstate" => "-m conntrack",
        "--mark" => "-m mark",
        "--limit" | "--limit-burst" => "-m limit",
        "--length" => "-m length",
        "--dscp" | "--dscp-class" => "-m dscp",
        "--tos" => "-m tos",
        "--ttl-eq" | "--ttl-lt" | "--ttl-gt" => "-m ttl",
        "--hl-eq" | "--hl-lt" | "--hl-gt" => "-m hl",
        "--comment" => "-m comment",
        "--match-set" => "-m set",
        "--mac-source" => "-m mac",
        "--src-type" | "--dst-type" => "-m addrtype",
        "--reject-with" => "-j REJECT",
        "--log-prefix" | "--log-level" => "-j LOG",
        "--set-mark" | "--set-xmark" => "-j MARK",
        "--seg6-action" => "-j SEG6",
        "--inner-src" | "--inner-dst" => "-m srh",
        _ if option.starts_with("--srh-") => "-m srh",
        _ if option.starts_with("--frag") => "-m frag",
        _ if option.starts_with("--hashlimit") => "-m hashlimit",
        _ if option.starts_with("--nflog-") => "-j NFLOG",
        _ => return None,
    })
}
