//! Names and numbers: protocols (IANA), services, ICMP types, DSCP classes, TOS values, log levels, types of REJECT.

use super::head::Family;
use segue_classifier::program::Reject;

/// Protocols by number. The first name of a number is the one that iptables-save writes.
const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ggp", 3),
    ("ipencap", 4),
    ("st", 5),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("pup", 12),
    ("udp", 17),
    ("hmp", 20),
    ("xns-idp", 22),
    ("rdp", 27),
    ("iso-tp4", 29),
    ("dccp", 33),
    ("xtp", 36),
    ("ddp", 37),
    ("idpr-cmtp", 38),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("idrp", 45),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ipv6-crypt", 50),
    ("ah", 51),
    ("ipv6-auth", 51),
    ("skip", 57),
    ("ipv6-icmp", 58),
    ("icmpv6", 58),
    ("icmp6", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("rspf", 73),
    ("vmtp", 81),
    ("eigrp", 88),
    ("ospf", 89),
    ("ospfigp", 89),
    ("ax.25", 93),
    ("ipip", 94),
    ("etherip", 97),
    ("encap", 98),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("isis", 124),
    ("sctp", 132),
    ("fc", 133),
    ("mobility-header", 135),
    ("ipv6-mh", 135),
    ("mh", 135),
    ("udplite", 136),
    ("mpls-in-ip", 137),
    ("manet", 138),
    ("hip", 139),
    ("shim6", 140),
    ("wesp", 141),
    ("rohc", 142),
    ("ethernet", 143),
];

/// Number of a protocol by its name, in any case.
pub(super) fn protocol(name: &str) -> Option<u8> {
    PROTOCOLS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, number)| *number)
}

/// The name that iptables-save writes for a protocol.
pub(super) fn protocol_name(number: u8) -> Option<&'static str> {
    PROTOCOLS.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}

/// Services that hand-written rules name. iptables-save writes numbers.
const SERVICES: &[(&str, u16)] = &[
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("http", 80),
    ("www", 80),
    ("kerberos", 88),
    ("pop3", 110),
    ("sunrpc", 111),
    ("nntp", 119),
    ("ntp", 123),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("netbios-ssn", 139),
    ("imap", 143),
    ("imap2", 143),
    ("snmp", 161),
    ("snmp-trap", 162),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("microsoft-ds", 445),
    ("submissions", 465),
    ("isakmp", 500),
    ("syslog", 514),
    ("submission", 587),
    ("ldaps", 636),
    ("domain-s", 853),
    ("rsync", 873),
    ("imaps", 993),
    ("pop3s", 995),
    ("openvpn", 1194),
    ("l2f", 1701),
    ("radius", 1812),
    ("radius-acct", 1813),
    ("nfs", 2049),
    ("mysql", 3306),
    ("ipsec-nat-t", 4500),
    ("sip", 5060),
    ("sip-tls", 5061),
    ("xmpp-client", 5222),
    ("mdns", 5353),
    ("postgresql", 5432),
    ("x11", 6000),
    ("http-alt", 8080),
];

/// Port of a service.
pub(super) fn service(name: &str) -> Option<u16> {
    SERVICES.iter().find(|(known, _)| *known == name).map(|(_, port)| *port)
}

/// A named ICMP type: name, type, and the range of codes.
pub(super) type IcmpName = (&'static str, u8, u8, u8);

const ICMP: &[IcmpName] = &[
    ("any", 255, 0, 255),
    ("echo-reply", 0, 0, 255),
    ("pong", 0, 0, 255),
    ("destination-unreachable", 3, 0, 255),
    ("network-unreachable", 3, 0, 0),
    ("host-unreachable", 3, 1, 1),
    ("protocol-unreachable", 3, 2, 2),
    ("port-unreachable", 3, 3, 3),
    ("fragmentation-needed", 3, 4, 4),
    ("source-route-failed", 3, 5, 5),
    ("network-unknown", 3, 6, 6),
    ("host-unknown", 3, 7, 7),
    ("network-prohibited", 3, 9, 9),
    ("host-prohibited", 3, 10, 10),
    ("TOS-network-unreachable", 3, 11, 11),
    ("TOS-host-unreachable", 3, 12, 12),
    ("communication-prohibited", 3, 13, 13),
    ("host-precedence-violation", 3, 14, 14),
    ("precedence-cutoff", 3, 15, 15),
    ("source-quench", 4, 0, 255),
    ("redirect", 5, 0, 255),
    ("network-redirect", 5, 0, 0),
    ("host-redirect", 5, 1, 1),
    ("TOS-network-redirect", 5, 2, 2),
    ("TOS-host-redirect", 5, 3, 3),
    ("echo-request", 8, 0, 255),
    ("ping", 8, 0, 255),
    ("router-advertisement", 9, 0, 255),
    ("router-solicitation", 10, 0, 255),
    ("time-exceeded", 11, 0, 255),
    ("ttl-exceeded", 11, 0, 255),
    ("ttl-zero-during-transit", 11, 0, 0),
    ("ttl-zero-during-reassembly", 11, 1, 1),
    ("parameter-problem", 12, 0, 255),
    ("ip-header-bad", 12, 0, 0),
    ("required-option-missing", 12, 1, 1),
    ("timestamp-request", 13, 0, 255),
    ("timestamp-reply", 14, 0, 255),
    ("address-mask-request", 17, 0, 255),
    ("address-mask-reply", 18, 0, 255),
];

const ICMPV6: &[IcmpName] = &[
    ("destination-unreachable", 1, 0, 255),
    ("no-route", 1, 0, 0),
    ("communication-prohibited", 1, 1, 1),
    ("beyond-scope", 1, 2, 2),
    ("address-unreachable", 1, 3, 3),
    ("port-unreachable", 1, 4, 4),
    ("failed-policy", 1, 5, 5),
    ("reject-route", 1, 6, 6),
    ("packet-too-big", 2, 0, 255),
    ("time-exceeded", 3, 0, 255),
    ("ttl-exceeded", 3, 0, 255),
    ("ttl-zero-during-transit", 3, 0, 0),
    ("ttl-zero-during-reassembly", 3, 1, 1),
    ("parameter-problem", 4, 0, 255),
    ("bad-header", 4, 0, 0),
    ("unknown-header-type", 4, 1, 1),
    ("unknown-option", 4, 2, 2),
    ("echo-request", 128, 0, 255),
    ("ping", 128, 0, 255),
    ("echo-reply", 129, 0, 255),
    ("pong", 129, 0, 255),
    ("router-solicitation", 133, 0, 255),
    ("router-advertisement", 134, 0, 255),
    ("neighbour-solicitation", 135, 0, 255),
    ("neighbor-solicitation", 135, 0, 255),
    ("neighbour-advertisement", 136, 0, 255),
    ("neighbor-advertisement", 136, 0, 255),
    ("redirect", 137, 0, 255),
];

/// A named ICMP or ICMPv6 type, in any case.
pub(super) fn icmp(family: Family, name: &str) -> Option<IcmpName> {
    let table = match family {
        Family::Ipv4 => ICMP,
        Family::Ipv6 => ICMPV6,
    };
    table.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name)).copied()
}

/// The name that ipset writes for a type and code: that of the code, else of the type if the code is 0.
pub(super) fn icmp_name(family: Family, kind: u8, code: u8) -> Option<&'static str> {
    let table = match family {
        Family::Ipv4 => ICMP,
        Family::Ipv6 => ICMPV6,
    };
    let exact = table.iter().find(|(_, known, first, last)| *known == kind && first == last && *first == code);
    let whole = || table.iter().find(|(_, known, first, last)| *known == kind && first != last && code == 0);
    exact.or_else(whole).map(|(name, ..)| *name)
}

/// Value of a DSCP class: BE, EF, CS0 to CS7, AF11 to AF43 (RFC 2474, 2597, 3246).
pub(super) fn dscp_class(name: &str) -> Option<u8> {
    let name = name.to_ascii_uppercase();
    match name.as_bytes() {
        b"BE" => Some(0),
        b"EF" => Some(0x2e),
        [b'C', b'S', class @ b'0'..=b'7'] => Some((class - b'0') << 3),
        [b'A', b'F', class @ b'1'..=b'4', drop @ b'1'..=b'3'] => Some((class - b'0') << 3 | (drop - b'0') << 1),
        _ => None,
    }
}

const TOS: &[(&str, u8)] = &[
    ("Minimize-Delay", 0x10),
    ("Maximize-Throughput", 0x08),
    ("Maximize-Reliability", 0x04),
    ("Minimize-Cost", 0x02),
    ("Normal-Service", 0x00),
];

/// Value of a TOS name (RFC 1349).
pub(super) fn tos(name: &str) -> Option<u8> {
    TOS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
}

const LOG_LEVELS: &[(&str, u8)] = &[
    ("alert", 1),
    ("crit", 2),
    ("debug", 7),
    ("emerg", 0),
    ("error", 3),
    ("err", 3),
    ("info", 6),
    ("notice", 5),
    ("panic", 0),
    ("warning", 4),
    ("warn", 4),
];

/// Number of a log level.
pub(super) fn log_level(name: &str) -> Option<u8> {
    LOG_LEVELS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, level)| *level)
}

const REJECT: &[(&str, &str, Reject)] = &[
    ("icmp-net-unreachable", "net-unreach", Reject::IcmpNetUnreachable),
    ("icmp-host-unreachable", "host-unreach", Reject::IcmpHostUnreachable),
    ("icmp-proto-unreachable", "proto-unreach", Reject::IcmpProtoUnreachable),
    ("icmp-port-unreachable", "port-unreach", Reject::IcmpPortUnreachable),
    ("icmp-net-prohibited", "net-prohib", Reject::IcmpNetProhibited),
    ("icmp-host-prohibited", "host-prohib", Reject::IcmpHostProhibited),
    ("icmp-admin-prohibited", "admin-prohib", Reject::IcmpAdminProhibited),
    ("tcp-reset", "tcp-rst", Reject::TcpReset),
];

const REJECT6: &[(&str, &str, Reject)] = &[
    ("icmp6-no-route", "no-route", Reject::Icmp6NoRoute),
    ("icmp6-adm-prohibited", "adm-prohibited", Reject::Icmp6AdmProhibited),
    ("icmp6-addr-unreachable", "addr-unreach", Reject::Icmp6AddrUnreachable),
    ("icmp6-port-unreachable", "port-unreach", Reject::Icmp6PortUnreachable),
    ("icmp6-policy-fail", "policy-fail", Reject::Icmp6PolicyFail),
    ("icmp6-reject-route", "reject-route", Reject::Icmp6RejectRoute),
    ("tcp-reset", "tcp-rst", Reject::TcpReset),
];

fn rejects(family: Family) -> &'static [(&'static str, &'static str, Reject)] {
    match family {
        Family::Ipv4 => REJECT,
        Family::Ipv6 => REJECT6,
    }
}

/// `--reject-with` by name or its short form.
pub(super) fn reject(family: Family, name: &str) -> Option<Reject> {
    rejects(family).iter().find(|(long, short, _)| *long == name || *short == name).map(|(_, _, reject)| *reject)
}

/// The name of a type of REJECT.
pub(super) fn reject_name(reject: Reject) -> &'static str {
    let all = REJECT.iter().chain(REJECT6);
    all.clone().find(|(_, _, known)| *known == reject).map_or("tcp-reset", |(name, _, _)| name)
}

/// All names of a family, for remedies.
pub(super) fn reject_names(family: Family) -> String {
    rejects(family).iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ")
}

/// TCP flags by name, in the order in which iptables writes them.
pub(super) const TCP_FLAGS: &[(&str, u8)] = &[("FIN", 1), ("SYN", 2), ("RST", 4), ("PSH", 8), ("ACK", 16), ("URG", 32)];

/// Connection states by name, in the order in which iptables writes them; bits of [`segue_classifier::field::state`].
pub(super) const STATES: &[(&str, u8)] = &[
    ("INVALID", segue_classifier::field::state::INVALID),
    ("NEW", segue_classifier::field::state::NEW),
    ("RELATED", segue_classifier::field::state::RELATED),
    ("ESTABLISHED", segue_classifier::field::state::ESTABLISHED),
    ("UNTRACKED", segue_classifier::field::state::UNTRACKED),
    ("SNAT", SNAT),
    ("DNAT", DNAT),
];

/// Bits of no packet here: there is no address translation. Kept so that a rule prints as it was written.
pub(super) const SNAT: u8 = 16;
/// Likewise.
pub(super) const DNAT: u8 = 32;
