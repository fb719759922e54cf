//! SR policies and their segment lists.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::Ipv6Net;

use crate::error::KeyPath;
use crate::limits::{HEADROOM_MAX, LISTS_MAX, SHARES, shares};
use crate::node::{HeadendMode, Policy, TrafficClass};

use super::Check;

/// Largest DSCP: six bits.
const DSCP_MAX: u8 = 63;

/// RFC 791 section 3.1: what every host takes.
const MSS_CLAMP_MIN: u16 = 576;

impl Check<'_> {
    pub(super) fn policies(&mut self) {
        let policies = KeyPath::root().at("policies");
        let (mut names, mut identities, mut binding_sids) = (HashMap::new(), HashMap::new(), HashMap::new());
        // The first of each comes last.
        let sids: HashMap<Ipv6Net, usize> =
            self.state.sids.iter().enumerate().rev().map(|(position, sid)| (sid.sid, position)).collect();
        for (position, policy) in self.state.policies.iter().enumerate() {
            let key = policies.at(position);
            self.display_name(&policy.name, &key.at("name"));
            if names.insert(policy.name.as_str(), position).is_some() {
                self.error(
                    &key.at("name"),
                    format!("the policy {:?} is there twice", policy.name),
                    "rename or remove one",
                );
            }
            if policy.color == Some(0) {
                self.error(&key.at("color"), "color 0 is not possible", "choose 1 or more (RFC 9256 section 2.1)");
            }
            if let (Some(color), Some(endpoint)) = (policy.color, policy.endpoint)
                && let Some(other) = identities.insert((color, endpoint), position)
            {
                let message = format!("policies[{other}] has the color {color} and the endpoint {endpoint} too");
                self.error(&key.at("color"), message, "change one: they identify the policy (RFC 9256 section 2.1)");
            }
            if let Some(IpAddr::V6(endpoint)) = policy.endpoint
                && (endpoint.is_multicast() || endpoint.is_loopback())
            {
                let message = format!("{endpoint} is no node's address");
                self.error(&key.at("endpoint"), message, "write a unicast address, or :: for any endpoint");
            }
            if let Some(binding_sid) = policy.binding_sid {
                let key = key.at("binding_sid");
                if let Some(other) = binding_sids.insert(binding_sid, position) {
                    let message = format!("policies[{other}] has the binding SID {binding_sid} too");
                    self.error(&key, message, "give each policy its own");
                }
                self.binding_sid(policy, binding_sid, &sids, &key);
            }
            self.owner(policy.owner.as_ref(), &key);
            self.outer_header(policy, &key);
            self.segment_lists(policy, &key.at("segment_lists"));
        }
    }

    fn binding_sid(&mut self, policy: &Policy, binding_sid: Ipv6Addr, sids: &HashMap<Ipv6Net, usize>, key: &KeyPath) {
        if !self.ipv6_address(binding_sid, key) {
            return;
        }
        let prefix = Ipv6Net::from(binding_sid);
        self.guarded(prefix, key);
        if let Some(position) = sids.get(&prefix) {
            let message = format!("{binding_sid} is also sids[{position}]");
            self.error(key, message, "remove it there: the binding SID stands for End.B6.Encaps or End.BM by itself");
        }
        if policy.pseudowire.is_some() {
            let message = "a policy with `pseudowire` has no binding SID: no frames come to a SID of this kind";
            self.error(key, message, "remove the key, or `pseudowire`");
        } else if policy.mode != HeadendMode::Push && !policy.mode.is_l3_encapsulation() {
            let message = format!("a policy of mode {} has no binding SID", policy.mode.name());
            self.error(key, message, "remove the key, or write `mode: H.Encaps`, H.Encaps.Red or PUSH");
        }
        let lists = policy.segment_lists.iter();
        if lists.filter_map(|list| list.segments.first()).any(|first| *first == binding_sid) {
            let message = "a segment list begins with the policy's own binding SID: packets would be encapsulated again and again";
            self.error(key, message, "begin the list with another SID");
        }
    }

    fn outer_header(&mut self, policy: &Policy, key: &KeyPath) {
        if let Some(address) = policy.source_address {
            if matches!(policy.mode, HeadendMode::HInsert | HeadendMode::Push) {
                let message = format!("{} adds no outer header that could have a source address", policy.mode.name());
                self.error(&key.at("source_address"), message, "remove the key, or choose another mode");
            }
            self.ipv6_address(address, &key.at("source_address"));
        }
        if let Some(octets) = policy.mss_clamp {
            let key = key.at("mss_clamp");
            if policy.carries_frames() {
                self.error(&key, "Ethernet frames are not looked into", "remove the key, or choose H.Encaps");
            } else if octets < MSS_CLAMP_MIN {
                let message = format!("{octets} octets are less than every IPv4 host takes");
                self.error(&key, message, format!("choose {MSS_CLAMP_MIN} or more (RFC 791), such as 1400"));
            }
        }
        if !policy.ttl.is_pipe() && policy.mode != HeadendMode::Push {
            let message = format!("{} puts on no labels whose TTL it could be", policy.mode.name());
            self.error(&key.at("ttl"), message, "remove the key, or write `mode: PUSH`");
        }
        if policy.entropy_label && policy.mode != HeadendMode::Push {
            let message = format!("{} puts on no labels behind which it could be", policy.mode.name());
            self.error(&key.at("entropy_label"), message, "remove the key, or write `mode: PUSH`");
        }
        self.pseudowire(policy, key);
        if policy.hop_limit == 0 {
            self.error(&key.at("hop_limit"), "with hop limit 0 no packet gets anywhere", "choose 1 to 255");
        }
        if let TrafficClass::Dscp(dscp) = policy.traffic_class
            && dscp > DSCP_MAX
        {
            let key = key.at("traffic_class").at("dscp");
            self.error(&key, format!("{dscp} is not a DSCP"), format!("choose 0 to {DSCP_MAX} (RFC 2474)"));
        }
    }

    fn segment_lists(&mut self, policy: &Policy, key: &KeyPath) {
        if policy.segment_lists.len() > LISTS_MAX {
            let message = format!("{} segment lists are too many", policy.segment_lists.len());
            self.error(key, message, format!("keep at most {LISTS_MAX}"));
        }
        let max = policy.mode.segments_max();
        if policy.mode == HeadendMode::Push {
            self.label_lists(policy, key);
            return self.weights(policy, key);
        }
        for (position, list) in policy.segment_lists.iter().enumerate() {
            let key = key.at(position);
            if list.weight == 0 {
                let message = "weight 0 makes a list invalid (RFC 9256 section 5.1)";
                self.error(&key.at("weight"), message, "choose 1 or more, or remove the list");
            }
            self.no_labels(list, policy.mode, &key);
            let segments = key.at("segments");
            if list.segments.is_empty() {
                self.error(&segments, "the list has no segment", "write at least one SID, or remove the list");
            }
            if list.segments.len() > max {
                self.too_many_segments(list.segments.len(), max, &segments);
            }
            for (position, segment) in list.segments.iter().enumerate() {
                self.ipv6_address(*segment, &segments.at(position));
            }
        }
        self.weights(policy, key);
    }

    fn weights(&mut self, policy: &Policy, key: &KeyPath) {
        let weights: Vec<u32> = policy.segment_lists.iter().map(|list| list.weight).collect();
        if weights.contains(&0) || weights.len() > LISTS_MAX {
            return;
        }
        for (position, share) in shares(&weights).into_iter().enumerate() {
            if share == 0 {
                let message = format!(
                    "a weight of {} among {} in all is less than 1/{SHARES} of the flows, which is the least that can be kept apart",
                    weights[position],
                    weights.iter().copied().map(u64::from).sum::<u64>()
                );
                self.error(&key.at(position).at("weight"), message, "raise it, or remove the list");
            }
        }
    }

    pub(super) fn too_many_segments(&mut self, found: usize, max: usize, key: &KeyPath) {
        let message = format!(
            "{found} segments are too many: at most {max} fit into the {HEADROOM_MAX} octets of headroom of an XDP frame"
        );
        self.error(key, message, "shorten the list, or let a segment be the binding SID of a policy that has the rest");
    }
}
