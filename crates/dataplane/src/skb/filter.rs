//! Programs on the ingress and egress of interfaces: by a link where the kernel has them (6.6), else by a filter of
//! `clsact`.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

pub use super::side::Side;
use super::side::number_of;
use crate::Error;
use crate::interfaces::dump;
use crate::skb::tcx::{self, Linked, Met};

/// Among other filters of the interface: ours is the first, and says nothing about packets that are not ours.
const PRIORITY: u32 = 1;
/// Within the priority: by this the filter is known to be Segue's.
const HANDLE: u32 = 0x005e_605e;

const FILTER: &str = "filter-";
const QDISC: &str = "qdisc";

/// `TC_H_CLSACT` has this major number; its two blocks of filters are `TC_H_MIN_INGRESS` and `TC_H_MIN_EGRESS`.
const CLSACT: u16 = 0xffff;
const BLOCKS: [u16; 2] = [0xfff2, 0xfff3];

/// Gives the interface this program in place of any other of Segue's, without a packet passing in between; nothing happens
/// if it has it already.
///
/// # Errors
/// [`Error::Filter`], [`Error::Pin`].
pub fn attach(pin_dir: &Path, ifindex: u32, name: &str, side: Side, program: BorrowedFd<'_>) -> Result<(), Error> {
    let failed = |action| move |source| Error::Filter { interface: name.to_owned(), action, source };
    let noted = path(pin_dir, ifindex);
    make(&noted)?;
    let mut hook = hook(program, ifindex, side);
    let linked = tcx::attach(&noted.join(side.pin()), ifindex, side, program)
        .map_err(|source| failed("link the TC program to")(source.into()))?;
    if linked == Linked::Yes {
        // A build that knew no links may have left a filter; until here it had the packets.
        if noted.join(QDISC).is_dir() || hook.query().is_ok() {
            detach_filters(&noted, ifindex);
        }
        return Ok(());
    }
    if hook.query().is_ok_and(|attached| Some(attached) == number_of(program, "prog_id:")) {
        return Ok(());
    }
    // The note comes first: an agent that dies now leaves a note too many, not a queueing discipline.
    if !has_clsact(ifindex)? {
        make(&noted.join(QDISC))?;
    }
    hook.create().map_err(failed("add the queueing discipline clsact to"))?;
    hook.replace(true).attach().map(drop).map_err(failed("attach the TC program to"))
}

/// Takes Segue's program off the interface, and `clsact` too if it was made for it and nobody else has a filter there.
/// Nothing happens if there is none, or if the interface has gone.
///
/// # Errors
/// [`Error::Pin`].
pub fn detach(pin_dir: &Path, ifindex: u32) -> Result<(), Error> {
    let noted = path(pin_dir, ifindex);
    detach_filters(&noted, ifindex);
    for side in [Side::Ingress, Side::Egress] {
        tcx::detach(&noted.join(side.pin()));
    }
    match fs::remove_dir_all(&noted) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(Error::Pin { path: noted, action: "remove it", source })
        }
        _ => Ok(()),
    }
}

fn detach_filters(noted: &Path, ifindex: u32) {
    for side in [Side::Ingress, Side::Egress] {
        // The descriptor plays no part in it.
        if let Err(error) = hook(std::io::stderr().as_fd(), ifindex, side).detach() {
            tracing::debug!("TC filter of ifindex {ifindex}, {side:?}: {error}");
        }
    }
    if noted.join(QDISC).is_dir() && filters(ifindex).is_ok_and(|filters| filters == 0) {
        let mut both = hook(std::io::stderr().as_fd(), ifindex, Side::Ingress);
        both.attach_point(TC_INGRESS | TC_EGRESS);
        if let Err(error) = both.destroy() {
            tracing::debug!("clsact of ifindex {ifindex}: {error}");
        }
        let _ = fs::remove_dir(noted.join(QDISC));
    }
}

/// By what the interface has a program of Segue's on its ingress, if it has one.
pub fn met(pin_dir: &Path, ifindex: u32) -> Option<Met> {
    let noted = path(pin_dir, ifindex);
    if !noted.is_dir() {
        return None;
    }
    if tcx::is_attached(&noted.join(Side::Ingress.pin()), ifindex) {
        return Some(Met::Link);
    }
    // The descriptor plays no part in it.
    hook(std::io::stderr().as_fd(), ifindex, Side::Ingress).query().is_ok().then_some(Met::Filter)
}

/// The interfaces that have a note, also those that have gone since.
pub fn attached(pin_dir: &Path) -> Vec<u32> {
    let entries = fs::read_dir(pin_dir).into_iter().flatten().flatten();
    let mut found: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix(FILTER)?.parse().ok()).collect();
    found.sort_unstable();
    found
}

fn path(pin_dir: &Path, ifindex: u32) -> PathBuf {
    pin_dir.join(format!("{FILTER}{ifindex}"))
}

fn make(directory: &Path) -> Result<(), Error> {
    match fs::create_dir(directory) {
        Err(source) if source.kind() != ErrorKind::AlreadyExists => {
            Err(Error::Pin { path: directory.to_owned(), action: "make the directory", source })
        }
        _ => Ok(()),
    }
}

fn hook(program: BorrowedFd<'_>, ifindex: u32, side: Side) -> TcHook {
    let mut builder = TcHookBuilder::new(program);
    builder.ifindex(i32::try_from(ifindex).unwrap_or(i32::MAX)).handle(HANDLE).priority(PRIORITY);
    builder.hook(if side == Side::Ingress { TC_INGRESS } else { TC_EGRESS })
}

fn has_clsact(ifindex: u32) -> Result<bool, Error> {
    let mut found = false;
    dump(RouteNetlinkMessage::GetQueueDiscipline(message(ifindex, TcHandle::UNSPEC)), |answer| {
        if let RouteNetlinkMessage::NewQueueDiscipline(qdisc) = answer {
            let kind = qdisc
                .attributes
                .iter()
                .any(|attribute| matches!(attribute, TcAttribute::Kind(kind) if kind == "clsact" || kind == "ingress"));
            found |= kind && qdisc.header.index.cast_unsigned() == ifindex;
        }
    })?;
    Ok(found)
}

/// How many filters the interface has.
fn filters(ifindex: u32) -> Result<usize, Error> {
    let mut found = 0;
    for minor in BLOCKS {
        let parent = TcHandle { major: CLSACT, minor };
        dump(RouteNetlinkMessage::GetTrafficFilter(message(ifindex, parent)), |answer| {
            if let RouteNetlinkMessage::NewTrafficFilter(_) = answer {
                found += 1;
            }
        })?;
    }
    Ok(found)
}

fn message(ifindex: u32, parent: TcHandle) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = ifindex.cast_signed();
    message.header.parent = parent;
    message
}
