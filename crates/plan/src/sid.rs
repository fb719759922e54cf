//! A SID with nothing but what every SID has.

use std::net::Ipv6Addr;

use segue_model::node::{Behaviour, Sid};

pub(crate) fn local_sid(sid: Ipv6Addr, behaviour: Behaviour, comment: String) -> Sid {
    Sid {
        sid: sid.into(),
        behaviour,
        flavours: Vec::new(),
        next_hop: None,
        next_hop_mac: None,
        port: None,
        table: None,
        policy: None,
        proxy: None,
        firewall: None,
        netfilter: None,
        argument_length: 0,
        answer_echo: true,
        allow_inner_sid: false,
        outside_locator: false,
        comment: Some(comment),
        owner: None,
    }
}
