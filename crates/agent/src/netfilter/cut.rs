//! The pair by which the kernel makes single, complete packets of socket buffers that are to get labels or to go
//! into IPv6 as whole frames (bpf/lib/packet/cut.h).
//!
//! ```text
//!    segue-cut0 <- veth -> segue-cut1      in the node itself
//! ```
//!
//! The near end leaves neither checksums nor segmentation to the far one, which puts nothing together.

use segue_host::device::OffloadSocket;
use segue_host::link::{Kind, LinkSocket, New};
use segue_model::proxy::{CUT_IN, CUT_OUT};

use super::{quiet, set};
use crate::kernel::KernelError;

/// Alias of both ends.
pub(super) const ALIAS: &str = "segue cut";

const CUT_IN_MAC: [u8; 6] = [0x02, 0x5e, 0x65, 0x67, 0x00, 0x03];
const CUT_OUT_MAC: [u8; 6] = [0x02, 0x5e, 0x65, 0x67, 0x00, 0x04];
/// Whatever a port may bring.
const MTU: u32 = 65535;

/// Without checksums there is no segmentation of what needs some. Without gathering, each packet is made in one piece, which its checksum is
/// summed up with.
const NOT_LEFT: [&str; 4] =
    ["tx-checksum-ip-generic", "tx-checksum-sctp", "tx-scatter-gather", "tx-scatter-gather-fraglist"];
const MERGED: &str = "rx-gro";

/// Makes it, or what is wrong with it right. Whether the node has got new interfaces.
pub(super) fn make(links: &mut LinkSocket) -> Result<bool, KernelError> {
    let mut offloads = match OffloadSocket::open() {
        Ok(offloads) => offloads,
        Err(error) => {
            tracing::warn!("no pair {CUT_IN}, {CUT_OUT} ({error}): segments in one buffer get no labels");
            return Ok(false);
        }
    };
    let is_new = links.find(CUT_IN)?.is_none();
    if is_new {
        let (near, far) = (New::named(CUT_IN, CUT_IN_MAC, MTU), New::named(CUT_OUT, CUT_OUT_MAC, MTU));
        links.add(&near, ALIAS, Kind::Veth { peer: &far, namespace: None })?;
    }
    for (name, not_left) in [(CUT_IN, &NOT_LEFT[..]), (CUT_OUT, &[MERGED][..])] {
        let Some(link) = links.find(name)? else { continue };
        for offload in not_left {
            offloads.set(link.index(), offload, false)?;
        }
        quiet(name)?;
        set(&format!("ipv6/conf/{name}/disable_ipv6"), "1")?;
        // Naming it anew would be a change of the link, which this follows.
        links.settle(name, is_new.then_some(ALIAS), MTU)?;
    }
    Ok(is_new)
}
