//! Pseudowires (RFC 4448): what their policies and labels need, and that what goes into one and comes out of it are frames.

use crate::error::KeyPath;
use crate::label::{Label, LabelBehaviour, Pseudowire};
use crate::node::{HeadendMode, Policy, PortRole};

use super::Check;

/// What becomes of packets that a label of this node gets.
enum End {
    /// The next label says it, or there is none, and the packet's destination does.
    Next,
    /// They leave with labels.
    Elsewhere,
    /// They must be IP packets.
    Packets,
    /// They must be frames.
    Frames { control_word: bool },
}

impl Label {
    /// Whether a control word is in front of each frame.
    fn has_control_word(&self) -> bool {
        self.control_word.unwrap_or(true)
    }

    fn end(&self, is_last: bool) -> End {
        match self.behaviour {
            LabelBehaviour::Node
            | LabelBehaviour::StaticProxy
            | LabelBehaviour::DynamicProxy
            | LabelBehaviour::Netfilter
            | LabelBehaviour::Firewall
            | LabelBehaviour::SrAware => End::Next,
            LabelBehaviour::Pop | LabelBehaviour::Adjacency if is_last => End::Packets,
            LabelBehaviour::Swap | LabelBehaviour::ExplicitNull | LabelBehaviour::Pop | LabelBehaviour::Adjacency => {
                End::Elsewhere
            }
            LabelBehaviour::Binding if !is_last => End::Elsewhere,
            LabelBehaviour::Table | LabelBehaviour::NextHop | LabelBehaviour::Binding => End::Packets,
            LabelBehaviour::Pseudowire => End::Frames { control_word: self.has_control_word() },
        }
    }
}

impl Check<'_> {
    /// The key `pseudowire` of a policy, and what does not go together with it.
    pub(super) fn pseudowire(&mut self, policy: &Policy, key: &KeyPath) {
        if policy.pseudowire.is_none() {
            return;
        }
        if policy.mode != HeadendMode::Push {
            let message = format!("{} puts on no labels, behind which frames could be", policy.mode.name());
            let remedy = "remove the key, and write `mode: H.Encaps.L2` for frames, or `mode: PUSH`";
            self.error(&key.at("pseudowire"), message, remedy);
        } else if !policy.ttl.is_pipe() {
            let message = "frames have no TTL that labels could begin with";
            self.error(&key.at("ttl"), message, "remove the key, and choose `hop_limit`");
        }
    }

    /// A label whose frames go out of a port.
    pub(super) fn pseudowire_label(&mut self, label: &Label, key: &KeyPath) {
        let Some(name) = &label.port else {
            return self.error(key, "the behaviour pseudowire needs the key \"port\"", "add `port:`");
        };
        // That there is such a port is asked for all labels.
        let role = self.ports.get(name.as_str()).map(|port| port.role);
        if role.is_some_and(|role| role != PortRole::Access) {
            let message = format!("frames out of a pseudowire are a customer's, and {name:?} is no access port");
            self.error(&key.at("port"), message, "name an access port, or write `role: access` for this one");
        }
    }

    /// Labels of this node from the first one on: they must not lead to one that takes something else than what is behind
    /// them. `pseudowire`: frames; else packets.
    pub(super) fn ends_here(&mut self, pseudowire: Option<Pseudowire>, labels: &[u32], key: &KeyPath) {
        for (position, number) in labels.iter().enumerate() {
            let Some(own) = self.state.labels.iter().find(|own| own.label == *number) else { return };
            let is_last = position + 1 == labels.len();
            let name = own.behaviour.name();
            let problem = match (own.end(is_last), pseudowire) {
                (End::Next, Some(_)) if is_last => {
                    format!("behind the label {number} of this node ({name}) there must be packets, not frames")
                }
                (End::Packets, Some(_)) => {
                    format!("behind the label {number} of this node ({name}) there must be packets, not frames")
                }
                (End::Frames { .. }, None) => {
                    format!("behind the label {number} of this node ({name}) there must be frames, not packets")
                }
                (End::Frames { control_word }, Some(wire)) if control_word != wire.control_word => {
                    let with = if control_word { "a" } else { "no" };
                    format!("the label {number} of this node takes frames with {with} control word")
                }
                (End::Next, _) => continue,
                _ => return,
            };
            let remedy = match pseudowire {
                Some(_) => "end the list with a label of the behaviour pseudowire, with the same `control_word`",
                None => "choose another label",
            };
            return self.error(key, problem, remedy);
        }
    }
}
