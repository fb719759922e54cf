//! What iptables knows and Segue refuses, with the reason and what to do: a rule is never ignored.

use super::head::Family;

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

/// What may be done about a match that is refused so that no packet passes which iptables would not let pass. Whatever else comes to
/// mind (another match that is nearly the same, an option less) lets more pass in some rule.
pub(super) const NARROWER: &str = "leave the rule out if it accepts; if it drops or rejects, leave the match out with all its \
                                   options, and it drops more; any other rule belongs into a kernel firewall in front of this one";

/// Likewise of a set.
pub(super) const WHOLE_SET: &str = "keep the rules that test this set in a kernel firewall in front of this one";
/// Likewise of an entry.
pub(super) const ENTRY: &str = "leave the entry out where being in the set lets packets pass; elsewhere keep the rules that test the \
                                set in a kernel firewall in front of this one";

const DECIDES_NOTHING: &str = "leave the rule out: it decides about no packet";
const KERNEL: &str = "keep this rule and those behind it in a kernel firewall in front of this one, or write DROP";
const MARKS: &str =
    "leave the rule out if no rule looks at the mark; else keep both in a kernel firewall in front of this one";
const NAT: &str = "send such traffic through a NAT function of the chain";

const MATCHES: &[(&str, &str)] = &[
    ("ah", "SPIs are not looked at"),
    ("bpf", "foreign BPF code is not run inside the data plane"),
    ("cgroup", NO_SOCKET),
    ("cluster", "it shares packets between nodes, which anycast SIDs and ECMP do here"),
    ("connbytes", NO_TRACK),
    ("connlabel", NO_TRACK),
    ("connlimit", "connections are not counted by address"),
    ("connmark", NO_TRACK),
    ("cpu", "a rule means the same on every CPU"),
    ("dccp", "DCCP's types and options are not looked at"),
    ("devgroup", "groups of interfaces are not known here"),
    ("dst", "options of the Destination Options header are not looked at"),
    ("ecn", "ECN bits of TCP are not looked at"),
    ("esp", "SPIs are not looked at"),
    ("eui64", "an interface identifier is not compared with a MAC address"),
    ("hbh", "options of the Hop-by-Hop header are not looked at"),
    ("helper", "connection tracking here has no helpers"),
    ("ipcomp", "SPIs are not looked at"),
    ("ipv6header", "the list of extension headers is not kept"),
    ("ipvs", "there is no IPVS here"),
    ("l2tp", NO_PAYLOAD),
    ("mh", "types of the Mobility header are not looked at"),
    ("nfacct", "there are no accounting objects, whose quotas decide what this matches"),
    ("osf", "operating systems are not guessed"),
    ("owner", NO_SOCKET),
    ("physdev", "there is no bridge between the ports of this data plane"),
    ("pkttype", "the frame's kind is not kept for the rules"),
    ("policy", "IPsec policies are not consulted"),
    ("quota", NO_COUNT),
    ("rateest", NO_COUNT),
    ("realm", NO_TABLE),
    ("rpfilter", NO_TABLE),
    ("socket", NO_SOCKET),
    ("statistic", "packets are not picked by chance or number"),
    ("string", NO_PAYLOAD),
    ("tcpmss", "values of TCP options are not looked at"),
    ("time", "rules do not change with the time of day"),
    ("u32", NO_PAYLOAD),
];

const TARGETS: &[Refusal] = &[
    ("AUDIT", "there is no audit log", "use LOG or NFLOG"),
    ("CHECKSUM", NO_CHANGE, "leave the rule out: checksums are complete here"),
    ("CLASSIFY", NO_CHANGE, DECIDES_NOTHING),
    ("CLUSTERIP", NO_CHANGE, KERNEL),
    ("CONNMARK", NO_TRACK, MARKS),
    ("CONNSECMARK", NO_TRACK, DECIDES_NOTHING),
    (
        "CT",
        NO_CONTROL,
        "leave the rule out if no rule looks at the state UNTRACKED; else keep both in a kernel firewall",
    ),
    ("DNAT", NO_NAT, NAT),
    ("DNPT", NO_NAT, NAT),
    ("DSCP", NO_CHANGE, "set it where the traffic is classified"),
    ("ECN", NO_CHANGE, "set it where the traffic is classified"),
    ("HL", NO_CHANGE, "leave the rule out if no rule looks at the hop limit; else keep both in a kernel firewall"),
    ("HMARK", "marks are not computed from hashes", MARKS),
    ("IDLETIMER", NO_COUNT, DECIDES_NOTHING),
    ("LED", "there is no lamp in the data plane", DECIDES_NOTHING),
    ("MASQUERADE", NO_NAT, NAT),
    ("NETMAP", NO_NAT, NAT),
    ("NFQUEUE", "no program is asked for a verdict", KERNEL),
    (
        "NOTRACK",
        NO_CONTROL,
        "leave the rule out if no rule looks at the state UNTRACKED; else keep both in a kernel firewall",
    ),
    ("QUEUE", "no program is asked for a verdict", KERNEL),
    ("RATEEST", NO_COUNT, DECIDES_NOTHING),
    ("REDIRECT", NO_NAT, NAT),
    ("SECMARK", NO_SOCKET, DECIDES_NOTHING),
    ("SET", "sets are not changed by packets", "keep this rule and those that test the set in a kernel firewall"),
    ("SNAT", NO_NAT, NAT),
    ("SNPT", NO_NAT, NAT),
    ("SYNPROXY", "connections are not answered for others", KERNEL),
    ("TCPMSS", NO_CHANGE, "leave the rule out, and set the MTU of the links instead"),
    (
        "TCPOPTSTRIP",
        NO_CHANGE,
        "leave the rule out if no rule looks at TCP options; else keep both in a kernel firewall",
    ),
    ("TEE", "packets are not doubled by rules", "use NFLOG, or `segue capture`"),
    ("TOS", NO_CHANGE, "set it where the traffic is classified"),
    ("TPROXY", NO_SOCKET, KERNEL),
    ("TRACE", "rules are not traced one by one", "use `segue firewall explain`"),
    ("TTL", NO_CHANGE, "leave the rule out if no rule looks at the TTL; else keep both in a kernel firewall"),
    ("ULOG", "it was removed from the kernel", "use NFLOG"),
];

/// Targets after which a packet goes on as if they had not been there: a rule with one of them may be skipped.
const WITHOUT_VERDICT: &[&str] = &[
    "",
    "AUDIT",
    "CHECKSUM",
    "CLASSIFY",
    "CONNSECMARK",
    "IDLETIMER",
    "LED",
    "LOG",
    "NFLOG",
    "RATEEST",
    "SECMARK",
    "TCPMSS",
    "TEE",
    "TRACE",
    "ULOG",
];

/// Whether a rule set without a rule of this target lets no packet pass that it would not let pass with it. Empty: no target.
pub(super) fn may_be_skipped(target: &str) -> bool {
    target == "ACCEPT" || WITHOUT_VERDICT.contains(&target)
}

/// Targets that are honoured.
pub(super) const HONOURED_TARGETS: &[&str] =
    &["ACCEPT", "DROP", "LOG", "MARK", "MPLS", "NFLOG", "REJECT", "RETURN", "SEG6"];

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
        ("srh" | "rt", Family::Ipv4) => Some(("IPv6", "a file for ip6tables")),
        _ => None,
    };
    if let Some((its, instead)) = other {
        return Some((format!("this match is for {its} only"), format!("use {instead}")));
    }
    let found = MATCHES.iter().find(|(known, ..)| *known == name)?;
    Some((format!("the match {name} is not honoured: {}", found.1), NARROWER.to_owned()))
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
        "--rcheck" | "--update" | "--remove" | "--seconds" | "--hitcount" => "-m recent",
        "--reject-with" => "-j REJECT",
        "--log-prefix" | "--log-level" => "-j LOG",
        "--set-mark" | "--set-xmark" => "-j MARK",
        "--seg6-action" => "-j SEG6",
        "--mpls-action" | "--mpls-count" => "-j MPLS",
        "--inner-src" | "--inner-dst" => "-m srh",
        _ if option.starts_with("--srh-") => "-m srh",
        _ if option.starts_with("--mpls-") => "-m mpls",
        _ if option.starts_with("--frag") => "-m frag",
        _ if option.starts_with("--rt-") => "-m rt",
        _ if option.starts_with("--hashlimit") => "-m hashlimit",
        _ if option.starts_with("--nflog-") => "-j NFLOG",
        _ => return None,
    })
}
