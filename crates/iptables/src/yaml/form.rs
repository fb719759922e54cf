//! The keys of the YAML form.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::super::head::Family;
use super::scalar::{Scalar, Scalars};

/// Rules of a firewall, with the meaning of iptables' table `filter`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Of all addresses.
    pub family: Family,
    /// Chains by name: INPUT, FORWARD, OUTPUT and user chains.
    #[schemars(with = "IndexMap<String, ChainForm>")]
    pub chains: IndexMap<String, Spanned<ChainForm>>,
}

/// A chain.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChainForm {
    /// What becomes of packets at the end of INPUT, FORWARD and OUTPUT: accept (the default) or drop. User chains have none.
    pub policy: Option<PolicyForm>,
    /// In order.
    #[serde(default)]
    #[schemars(with = "Vec<RuleForm>")]
    pub rules: Vec<Spanned<RuleForm>>,
}

/// What becomes of packets at the end of a built-in chain.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyForm {
    /// They go on.
    Accept,
    /// They are dropped.
    Drop,
}

/// A rule. At most one of action, jump, goto, reject, log, nflog, mark, seg6 and mpls; none of them: packets are counted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleForm {
    /// All of these must hold.
    #[serde(default, rename = "match")]
    #[schemars(rename = "match")]
    pub all_of: MatchForm,
    /// None of these must hold.
    #[serde(default)]
    pub none_of: MatchForm,
    /// At most so many packets in a time, of all that match.
    pub limit: Option<LimitForm>,
    /// The same for each source, destination and so on.
    pub hash_limit: Option<HashLimitForm>,
    /// For people.
    pub comment: Option<Scalar>,
    /// What happens to the packet.
    #[schemars(with = "Option<ActionForm>")]
    pub action: Option<Spanned<ActionForm>>,
    /// The rules of this user chain follow, then the next rule.
    pub jump: Option<Scalar>,
    /// The rules of this user chain follow, and not the next rule.
    pub goto: Option<Scalar>,
    /// Dropped, and the sender told with this type, such as tcp-reset or icmp6-adm-prohibited.
    pub reject: Option<Scalar>,
    /// Written to the log.
    #[schemars(with = "Option<LogForm>")]
    pub log: Option<Spanned<LogForm>>,
    /// Copied to a listener.
    #[schemars(with = "Option<NflogForm>")]
    pub nflog: Option<Spanned<NflogForm>>,
    /// Sets the mark: value or value/mask.
    pub mark: Option<Scalar>,
    /// Acts on the segment list: go-next, skip-next, go-last or eval-args.
    pub seg6: Option<Scalar>,
    /// Acts on the stack behind the firewall's label: go-next, skip-next or go-last.
    pub mpls: Option<Scalar>,
    /// How many labels `mpls` skips or leaves; 1 by default.
    pub mpls_count: Option<Scalar>,
}

/// Actions without options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ActionForm {
    /// The packet goes on.
    Accept,
    /// It is dropped.
    Drop,
    /// The end of this chain.
    Return,
    /// It is dropped, and the sender told that the port is unreachable.
    Reject,
    /// Only counted.
    Count,
}

/// Conditions on a packet.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MatchForm {
    /// Address, prefix or address/mask; a list becomes a rule for each.
    pub source: Option<Scalars>,
    /// As source.
    pub destination: Option<Scalars>,
    /// Interface that the packet came in by; + at the end: all that begin so.
    pub in_interface: Option<Scalar>,
    /// Interface that it leaves by.
    pub out_interface: Option<Scalar>,
    /// Number or name.
    pub protocol: Option<Scalar>,
    /// IPv4: second and later fragments.
    pub later_fragment: bool,
    /// Ports and ranges (80, "8000-8080"), at most 15, of which a range counts two.
    pub source_ports: Option<Scalars>,
    /// As source_ports.
    pub destination_ports: Option<Scalars>,
    /// Source or destination.
    pub ports: Option<Scalars>,
    /// TCP: SYN set; ACK, RST and FIN not.
    pub syn: bool,
    /// TCP flags.
    pub tcp_flags: Option<TcpFlagsForm>,
    /// Kind of an option of the TCP header.
    pub tcp_option: Option<Scalar>,
    /// ICMP or ICMPv6 type by name, number or number/code.
    pub icmp: Option<Scalar>,
    /// first-last.
    pub source_range: Option<Scalar>,
    /// first-last.
    pub destination_range: Option<Scalar>,
    /// new, established, related, invalid, untracked.
    pub state: Option<Scalars>,
    /// original (from the side that began the connection) or reply.
    pub direction: Option<Scalar>,
    /// value or value/mask.
    pub mark: Option<Scalar>,
    /// Octets of the packet, or first-last.
    pub length: Option<Scalar>,
    /// Number or class, such as EF.
    pub dscp: Option<Scalar>,
    /// Whole octet: value or value/mask.
    pub tos: Option<Scalar>,
    /// TTL or Hop Limit.
    pub hop_limit: Option<Scalar>,
    /// Less than this.
    pub hop_limit_below: Option<Scalar>,
    /// More than this.
    pub hop_limit_above: Option<Scalar>,
    /// MAC address of the sender.
    pub source_mac: Option<Scalar>,
    /// unicast, local, broadcast, multicast.
    pub source_type: Option<Scalars>,
    /// As source_type.
    pub destination_type: Option<Scalars>,
    /// Sets that the packet must be in (under none_of: must not).
    pub sets: Vec<SetForm>,
    /// IPv6's Fragment header.
    pub fragment: Option<FragmentForm>,
    /// The Segment Routing Header; {}: there is one.
    pub srh: Option<SrhForm>,
    /// Label stack entries; {}: the packet came by a label.
    pub mpls: Vec<MplsForm>,
}

/// TCP flags.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TcpFlagsForm {
    /// Those that are looked at.
    pub of: Scalars,
    /// Those of them that must be set; NONE.
    pub set: Scalars,
}

/// A set.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetForm {
    /// Its name.
    pub name: Scalar,
    /// src or dst for each of its dimensions.
    pub sides: Scalars,
}

/// IPv6's Fragment header.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FragmentForm {
    /// Identification or first-last.
    pub id: Option<Scalar>,
    /// The reserved fields are 0.
    pub reserved_zero: bool,
    /// The first fragment.
    pub first: bool,
    /// More fragments follow (true) or not (false).
    pub more: Option<bool>,
}

/// The Segment Routing Header (RFC 8754).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SrhForm {
    /// Source of the inner packet.
    pub inner_source: Option<Scalar>,
    /// Destination of the inner packet.
    pub inner_destination: Option<Scalar>,
    /// Next Header.
    pub next_header: Option<Scalar>,
    /// Hdr Ext Len.
    pub length: Option<Scalar>,
    /// More than this.
    pub length_above: Option<Scalar>,
    /// Less than this.
    pub length_below: Option<Scalar>,
    /// Segments Left.
    pub segments_left: Option<Scalar>,
    /// More than this.
    pub segments_left_above: Option<Scalar>,
    /// Less than this.
    pub segments_left_below: Option<Scalar>,
    /// Last Entry.
    pub last_entry: Option<Scalar>,
    /// More than this.
    pub last_entry_above: Option<Scalar>,
    /// Less than this.
    pub last_entry_below: Option<Scalar>,
    /// Tag.
    pub tag: Option<Scalar>,
    /// SID before the active one.
    pub previous_sid: Option<Scalar>,
    /// SID behind the active one.
    pub next_sid: Option<Scalar>,
    /// Last SID of the path.
    pub last_sid: Option<Scalar>,
}

/// An entry of the label stack (RFC 3032).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MplsForm {
    /// Which: 0 for the firewall's own label, 1 (the default) to 16 for those behind it, any, or last.
    pub depth: Option<Scalar>,
    /// Label, or first-last.
    pub label: Option<Scalar>,
    /// Traffic Class, 0 to 7.
    pub traffic_class: Option<Scalar>,
    /// Bottom of stack, 0 or 1.
    pub bottom: Option<Scalar>,
    /// TTL, or first-last.
    pub ttl: Option<Scalar>,
    /// How many entries are behind the firewall's own, or first-last.
    pub entries: Option<Scalar>,
}

/// A rate and a burst.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitForm {
    /// Such as 5/minute.
    pub rate: Scalar,
    /// Packets that may come at once; 5 by default.
    pub burst: Option<Scalar>,
}

/// Limits for each value of some fields.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HashLimitForm {
    /// Rules with one name share their buckets.
    pub name: Scalar,
    /// Packets up to this rate match.
    pub up_to: Option<Scalar>,
    /// Packets above this rate match.
    pub above: Option<Scalar>,
    /// Packets that may come at once; 5 by default.
    pub burst: Option<Scalar>,
    /// srcip, dstip, srcport, dstport; by default one limit for all.
    pub by: Option<Scalars>,
    /// Bits of the source address that tell limits apart.
    pub source_prefix: Option<Scalar>,
    /// Bits of the destination address.
    pub destination_prefix: Option<Scalar>,
    /// Milliseconds after which an idle limit is forgotten.
    pub expire_ms: Option<Scalar>,
    /// Most limits at once.
    pub entries_max: Option<Scalar>,
}

/// What a log line has.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogForm {
    /// In front of it, at most 29 octets.
    pub prefix: Option<Scalar>,
    /// 0 to 7 or a name; warning by default.
    pub level: Option<Scalar>,
    /// With TCP sequence numbers.
    pub tcp_sequence: bool,
    /// With TCP options.
    pub tcp_options: bool,
    /// With IP options.
    pub ip_options: bool,
}

/// Where copies go.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NflogForm {
    /// Group, 0 by default.
    pub group: Option<Scalar>,
    /// At most 63 octets.
    pub prefix: Option<Scalar>,
    /// Octets copied of each packet; by default all.
    pub size: Option<Scalar>,
    /// Packets queued before they are handed over.
    pub threshold: Option<Scalar>,
}
