//! Which interfaces take frames that XDP redirects into them: the others lose them without a word, so the TC program on the port sends
//! what leaves by those (`transmit()` in bpf/lib/packet/outcome.h). It changes as somebody at the far end of a veth likes.

use std::collections::BTreeSet;

use segue_abi as abi;

use super::Dataplane;
use crate::Error;
use crate::facts::Interfaces;

const TAKES_FRAMES: &str = "takes_frames";
const TAKEN: u8 = 1;

impl Dataplane {
    /// Tells the programs which interfaces take frames, and has them forget the ways by those that have changed. Returns these.
    pub(super) fn follow_frames(&self, interfaces: &Interfaces) -> Result<BTreeSet<u32>, Error> {
        let ports = self.applied().map(|active| active.ports.as_slice()).unwrap_or_default();
        let taking = taking(interfaces, &ports.iter().map(|port| port.entry.ifindex).collect());
        let known = self.taking_frames()?;
        let changed: BTreeSet<u32> = known.symmetric_difference(&taking).copied().collect();
        // There is room for new ones when the old ones are gone.
        for ifindex in known.difference(&taking) {
            self.maps.delete(TAKES_FRAMES, ifindex)?;
        }
        for ifindex in taking.difference(&known) {
            self.maps.write(TAKES_FRAMES, ifindex, &TAKEN)?;
        }
        self.life.forget_links(&changed.iter().copied().collect::<Vec<_>>())?;
        Ok(changed)
    }

    /// The interfaces that XDP redirects into.
    pub(super) fn taking_frames(&self) -> Result<BTreeSet<u32>, Error> {
        Ok(self.maps.keys::<u32>(TAKES_FRAMES)?.into_iter().collect())
    }
}

/// As many as there is room for, ports first.
fn taking(interfaces: &Interfaces, ports: &BTreeSet<u32>) -> BTreeSet<u32> {
    let all = || interfaces.0.values().filter(|link| link.takes_frames).map(|link| link.ifindex);
    let first = all().filter(|ifindex| ports.contains(ifindex));
    let rest = all().filter(|ifindex| !ports.contains(ifindex));
    first.chain(rest).take(abi::SEGUE_TAKES_FRAMES_MAX as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Interface;

    #[test]
    fn ports_are_told_first_and_what_finds_no_room_goes_the_other_way() {
        let link = |ifindex: u32| Interface {
            ifindex,
            mtu: 1500,
            mac: [2; 6],
            addresses: Vec::new(),
            up: true,
            peer_elsewhere: false,
            vrf: None,
            ruled: false,
            hook: Default::default(),
            takes_frames: ifindex % 2 == 1,
        };
        let interfaces =
            |most: u32| Interfaces((1..=most).map(|number| (format!("i{number}"), link(number))).collect());
        assert_eq!(taking(&interfaces(6), &[2, 3].into()), [1, 3, 5].into());
        let many = interfaces(3 * abi::SEGUE_TAKES_FRAMES_MAX);
        let last = 3 * abi::SEGUE_TAKES_FRAMES_MAX - 1;
        let found = taking(&many, &[last].into());
        assert_eq!(found.len(), abi::SEGUE_TAKES_FRAMES_MAX as usize);
        assert!(found.contains(&last));
    }
}
