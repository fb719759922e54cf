//! Congestion marks on labels (RFC 5129), as the data plane looks them up.

use segue_abi as abi;
use segue_model::label_ecn::EcnPair;
use segue_model::node::NodeState;

/// Of the node.
pub(super) fn pairs(state: &NodeState) -> &[EcnPair] {
    state.mpls.as_ref().map_or(&[], |mpls| &mpls.ecn)
}

/// Four bits for each value of TC: its partner, or itself; and 8 for one that is a mark.
pub(super) fn classes(pairs: &[EcnPair]) -> u32 {
    pairs.iter().fold(abi::SEGUE_LABEL_CLASSES_NONE, |classes, pair| {
        let (class, marked) = (u32::from(pair.class), u32::from(pair.marked));
        let classes = classes & !(0xf << (4 * class)) & !(0xf << (4 * marked));
        classes | marked << (4 * class) | (class | 8) << (4 * marked)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_names_its_partner() {
        assert_eq!(classes(&[]), 0x7654_3210);
        let pairs = [EcnPair { class: 0, marked: 1 }, EcnPair { class: 6, marked: 4 }];
        assert_eq!(classes(&pairs), 0x745e_3281);
    }
}
