//! Firewalls of a node: rules as netfilter's tools write them, applied to steered and to plain packets (SERA).
//!
//! A node's desired state names them (`firewalls`); in a topology a function may be one (`functions.NAME.firewall`).

use std::fmt;

use schemars::JsonSchema;
use serde::de::{Error as _, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use crate::guard::Refusal;

/// Bits of the active SID that `--seg6-action seg6-eval-args` reads unless the firewall says otherwise.
const ARGUMENT_LENGTH: u8 = 16;

/// A set of rules, for SIDs (`sids[].firewall`) and ports (`ports[].firewall`). Both directions of a flow may meet it at different
/// SIDs and ports: what it knows of connections is one table, which is its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Firewall {
    /// Unique on the node. Not in a topology: there it is the function's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Rules for IPv4 packets, as `iptables-save` writes them. Without, all IPv4 packets pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<RuleFile>,
    /// Rules for IPv6 packets, as `ip6tables-save` writes them. Without, all IPv6 packets pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<RuleFile>,
    /// Rules in YAML, for the family that the file names, instead of `ipv4` or `ipv6`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yaml: Option<RuleFile>,
    /// Sets that the rules name, as `ipset save` writes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<RuleFile>,
    /// Which addresses `-s` and `-d` mean where a packet is encapsulated. Behind a label: right behind the stack.
    #[serde(default)]
    pub mode: FirewallMode,
    /// The switch: false lets every packet pass unfiltered and uncounted.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub basic: bool,
    /// The built-in chain that packets meet.
    #[serde(default = "forward", skip_serializing_if = "is_forward")]
    pub hook: String,
    /// What becomes of tables and rules that cannot be honoured.
    #[serde(default, skip_serializing_if = "Unsupported::is_refuse")]
    pub unsupported: Unsupported,
    /// `seg6-eval-args`: bits of the argument right behind LOC:FUNCT of the active SID, 1 to 32.
    #[serde(default = "argument_length", skip_serializing_if = "is_argument_length")]
    pub argument_length: u8,
    /// What is remembered of connections, where rules look at their states.
    #[serde(default)]
    pub conntrack: Conntrack,
}

/// Connection tracking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Conntrack {
    /// Connections that this firewall remembers at most, rounded up to a multiple of 8, at least 16; 1 to 10000000. The table is its
    /// own. A connection takes 144 octets of memory, whether it is there or not.
    pub entries: u32,
    /// Beginnings (SYNs, questions without an answer) that leave a trace when they give way to others, at 8 octets each; 0 to
    /// 100000000. Under a flood a handshake survives if this is more than four times the packets that begin a connection
    /// within its round trip.
    pub beginnings: u32,
    /// TCP segments outside of the window belong to their connection as others do (netfilter's
    /// `nf_conntrack_tcp_be_liberal`). Without, they are INVALID.
    pub tcp_be_liberal: bool,
}

impl Default for Conntrack {
    fn default() -> Self {
        Self { entries: 65_536, beginnings: 1 << 20, tcp_be_liberal: false }
    }
}

/// SERA's modes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FirewallMode {
    /// Those of the inner packet: rules written for plain traffic work on steered traffic as they are.
    #[default]
    Basic,
    /// Those of the outermost header; `-m srh` tests the SRH and the inner addresses. Steered packets meet the IPv6 rules.
    Advanced,
}

/// What becomes of what a rule file has and Segue does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unsupported {
    /// Nothing of the file is loaded.
    #[default]
    Refuse,
    /// Tables other than `filter` are left out with a warning, and so is a rule that accepts or decides nothing. A rule that drops,
    /// rejects or leads elsewhere is refused still: without it more packets would pass.
    Skip,
}

impl Unsupported {
    const fn is_refuse(&self) -> bool {
        matches!(self, Self::Refuse)
    }
}

/// A rule file: its path, which `segue apply` reads relative to the document, or what it read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum RuleFile {
    /// A path. The agent has no access to files: it is replaced by the text before it gets there.
    Path(String),
    /// The text.
    Text {
        /// What it is called in messages.
        file: String,
        /// The file's content.
        text: String,
    },
}

impl<'de> Deserialize<'de> for RuleFile {
    /// By hand: of an untagged enum, serde says no more than that no variant fits.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RuleFileVisitor)
    }
}

struct RuleFileVisitor;

/// [`RuleFile::Text`] as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    file: String,
    text: Option<String>,
}

impl<'de> Visitor<'de> for RuleFileVisitor {
    type Value = RuleFile;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the path of a rule file, such as rules.v6")
    }

    fn visit_str<E: serde::de::Error>(self, path: &str) -> Result<RuleFile, E> {
        Ok(RuleFile::Path(path.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<RuleFile, A::Error> {
        let Written { file, text } = Written::deserialize(MapAccessDeserializer::new(access))?;
        let missing = || {
            let remedy = format!("write the path alone, without `file:` ({file}); `segue apply` reads it");
            A::Error::custom(Refusal::new("this rule file has a name and no text", remedy))
        };
        Ok(RuleFile::Text { text: text.ok_or_else(missing)?, file })
    }
}

impl RuleFile {
    /// What the file is called in messages.
    pub fn name(&self) -> &str {
        match self {
            Self::Path(file) | Self::Text { file, .. } => file,
        }
    }

    /// Its content; None for a path.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Path(_) => None,
            Self::Text { text, .. } => Some(text),
        }
    }
}

impl Firewall {
    /// Whether a rule may take its action from the argument of the active SID.
    pub fn reads_arguments(&self) -> bool {
        self.files().any(|file| file.text().is_some_and(|text| text.contains("eval-args")))
    }

    /// Whether a rule may look at lists of addresses (`-m recent`).
    pub fn has_lists(&self) -> bool {
        self.files().any(|file| file.text().is_some_and(|text| text.contains("recent")))
    }

    /// All its files.
    pub fn files(&self) -> impl Iterator<Item = &RuleFile> {
        self.ipv4.iter().chain(&self.ipv6).chain(&self.yaml).chain(&self.sets)
    }

    /// The same, to replace paths by texts.
    pub fn files_mut(&mut self) -> impl Iterator<Item = &mut RuleFile> {
        self.ipv4.iter_mut().chain(&mut self.ipv6).chain(&mut self.yaml).chain(&mut self.sets)
    }
}

impl Default for Firewall {
    /// Without rules; every other key as if it were not written.
    fn default() -> Self {
        Self {
            name: String::new(),
            ipv4: None,
            ipv6: None,
            yaml: None,
            sets: Vec::new(),
            mode: FirewallMode::default(),
            basic: yes(),
            hook: forward(),
            unsupported: Unsupported::default(),
            argument_length: argument_length(),
            conntrack: Conntrack::default(),
        }
    }
}

fn yes() -> bool {
    true
}
fn is_true(value: &bool) -> bool {
    *value
}
fn forward() -> String {
    "FORWARD".to_owned()
}
fn is_forward(hook: &str) -> bool {
    hook == "FORWARD"
}
fn argument_length() -> u8 {
    ARGUMENT_LENGTH
}
fn is_argument_length(bits: &u8) -> bool {
    *bits == ARGUMENT_LENGTH
}
