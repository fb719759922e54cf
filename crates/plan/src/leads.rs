//! What leads to a function: SIDs or labels; and what a label says that does.

use segue_model::label::LabelBehaviour;
use segue_model::node::MayRewrite;
use segue_model::topology::{FunctionKind, SrDataplane};

use crate::approach::{Approach, Nature};
use crate::inventory::{Function, Inventory};

/// What a label says that leads to a function. None: what gives packets to it this way is for SIDs only.
pub(crate) fn behaviour(approach: Approach) -> Option<LabelBehaviour> {
    match approach {
        Approach::Static => Some(LabelBehaviour::StaticProxy),
        Approach::Dynamic | Approach::Flow | Approach::Exact => Some(LabelBehaviour::DynamicProxy),
        Approach::Netfilter => Some(LabelBehaviour::Netfilter),
        Approach::Firewall => Some(LabelBehaviour::Firewall),
        Approach::Aware => Some(LabelBehaviour::SrAware),
        Approach::Masquerading => None,
    }
}

/// Why no label can lead to a function: the key that asks for what labels do not have, what is wrong, what to do but to let SIDs lead to it.
pub(crate) fn refusal(function: &Function, approach: Approach) -> Option<(&'static str, String, String)> {
    let refused = |key, message: &str, remedy: &str| Some((key, message.to_owned(), remedy.to_owned()));
    match (approach, function.kind) {
        (Approach::Masquerading, _) => {
            let others = Nature::of(function).fitting_proxies(true);
            let message = "has a masquerading proxy, which shows it packets with their segment routing header: packets with labels have none";
            Some(("proxy", message.to_owned(), format!("write one of them: {others}")))
        }
        (Approach::Aware, FunctionKind::Namespace) => refused(
            "aware",
            "is SR-aware, and gets packets with their labels, which the kernel of its namespace does not forward",
            "write `tap` with a program that does, or remove the key, so that a proxy stands in for it",
        ),
        (Approach::Aware, _) if function.may_change.is_some() => refused(
            "may_change",
            "may change segment lists, and a stack of labels goes on as the function got it",
            "remove the key",
        ),
        (Approach::Aware, _) if function.may_rewrite.iter().any(|what| *what != MayRewrite::Addresses) => refused(
            "may_rewrite",
            "may rewrite what labels do not have, or what nobody compares behind them",
            "remove it; `addresses` may be there",
        ),
        _ => None,
    }
}

/// Whether labels lead to a function, rather than SIDs: as to its node; where both lead there, what the inventory says, if labels can.
pub(crate) fn is_by_labels(inventory: &Inventory, function: &Function, approach: Approach) -> bool {
    let Some(node) = inventory.nodes.get(&function.node).filter(|node| node.labels.is_some()) else { return false };
    !node.sids || (inventory.dataplane == SrDataplane::SrMpls && refusal(function, approach).is_none())
}
