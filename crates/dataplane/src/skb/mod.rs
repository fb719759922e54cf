//! The data plane where packets are socket buffers: the programs of `bpf/segue_skb.bpf.c` for the TC hook. Those of ports that have
//! this hook in place of XDP, and those that lead packets through functions on the kernel's path.
//!
//! They are attached by links, which are pinned. Kernels before 6.6 know no links of this kind: there a filter does it, which cannot be
//! pinned and stays with its interface until it is removed. What is pinned is enough to find, replace and remove them after a crash:
//!
//! ```text
//! PIN_DIR/
//!   filter-IFINDEX/        the interface has, or is about to get, one of the programs
//!     ingress, egress      the links
//!     qdisc/               before 6.6: the queueing discipline `clsact` that filters need was made for it
//!   maps-N/
//!     functions-BUILD-PART/  the programs of a part, on the maps of this set: what ports have, and what functions need
//! ```

mod filter;
mod programs;
mod side;
mod tcx;

pub(crate) use self::filter::{Side, attach, attached, detach, met};
pub use self::programs::OBJECT;
pub(crate) use self::programs::{
    CUT, EGRESS, IN, INJECT, OUT, PORT, Part, Programs, Reach, keep_only_needed, open_or_load, port_stages, reaches,
};
pub(crate) use self::tcx::Met;

#[cfg(test)]
mod tests {
    use super::programs;

    #[test]
    fn object_has_its_programs_and_no_map_that_the_xdp_object_lacks() {
        let object = programs::open(&crate::facts::Capacity::default()).expect("the embedded object opens");
        for name in [programs::IN, programs::OUT, programs::EGRESS, programs::CUT, programs::PORT] {
            assert!(object.progs().any(|program| program.name() == name), "{name}");
        }
        let xdp = crate::object::open(&crate::facts::Capacity::default()).expect("the embedded object opens");
        let own: Vec<_> = object
            .maps()
            .filter_map(|map| crate::object::pin_name(map.name()))
            .filter(|name| !xdp.maps().any(|map| crate::object::pin_name(map.name()).as_deref() == Some(name)))
            .collect();
        assert_eq!(own, ["skb_stages"], "maps that would not be shared");
    }
}
