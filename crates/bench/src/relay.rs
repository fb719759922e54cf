//! What a user could write instead of a service: the same work (every packet goes on, one segment further) on the interfaces that Linux has for it. One
//! thread, a packet for each call, as such programs are.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, recvfrom, send,
    sendto, setsockopt, socket, sockopt,
};
use nix::unistd::Pid;
use segue_host::Run;
use segue_host::tun::{LARGEST, Tun};

use crate::error::{Error, Result};
use crate::frame::ETHERNET;
use crate::netns::Namespace;
use crate::topology::SID;

/// How a relay gets packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `AF_PACKET`: a frame for each recvfrom() and sendto().
    Packet,
    /// A TUN device to which the SID is routed.
    Tun,
    /// The kernel's NFQUEUE: the whole packet is copied, the verdict is to accept, and the kernel does End.
    Queue,
}

/// A relay at work; it ends when dropped.
#[derive(Debug)]
pub struct Relay {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const TUN: &str = "relay";
/// How often a relay looks whether it shall end.
const LOOK: u16 = 100;

impl Relay {
    /// Starts one in a namespace, on a processor.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn start(kind: Kind, namespace: &Namespace, cpu: usize) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let inside = namespace.enter()?;
        let system = |what: &'static str| move |error: std::io::Error| Error::file(what)(error);
        let mut work: Box<dyn FnMut() + Send> = match kind {
            Kind::Packet => {
                // ETH_P_IPV6 only.
                let protocol = SockProtocol::EthIpv6;
                let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)
                    .map_err(|error| system("a packet socket")(error.into()))?;
                nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))
                    .map_err(|error| system("a packet socket")(error.into()))?;
                let mut buffer = vec![0; LARGEST + ETHERNET];
                Box::new(move || packet(&fd, &mut buffer))
            }
            Kind::Tun => {
                let tun = Tun::open_for_kernel(TUN)?;
                namespace.ip(&format!("-6 route add {SID}/128 dev {TUN}"))?;
                let mut buffer = vec![0; LARGEST];
                Box::new(move || through_tun(&tun, &mut buffer))
            }
            Kind::Queue => {
                let words = "-t mangle -A PREROUTING -j NFQUEUE --queue-num 0".split(' ');
                Run::new("ip6tables", words).inside(namespace.name()).text()?;
                let fd = queue().map_err(|error| system("a queue of netfilter")(error))?;
                let mut buffer = vec![0; 2 * LARGEST];
                Box::new(move || queued(&fd, &mut buffer))
            }
        };
        drop(inside);
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut one = CpuSet::new();
            let _ = one.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &one));
            while !told.load(Ordering::Relaxed) {
                work();
            }
        });
        Ok(Self { stop, thread: Some(thread) })
    }
}

/// Waits a while for packets.
fn ready(fd: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::from(LOOK)).is_ok_and(|ready| ready > 0)
}

/// One segment further, if it is steered: the packet begins at `at`. The hop limit is lowered if `hop`.
fn advance(octets: &mut [u8], at: usize, hop: bool) -> bool {
    let Some(packet) = octets.get_mut(at..).filter(|packet| packet.len() > 48) else { return false };
    let left = packet[43];
    if packet[6] != 43 || packet[42] != 4 || left == 0 || packet[7] <= 1 {
        return false;
    }
    let segment = 48 + 16 * (usize::from(left) - 1);
    if packet.len() < segment + 16 {
        return false;
    }
    packet.copy_within(segment..segment + 16, 24);
    packet[43] = left - 1;
    packet[7] -= u8::from(hop);
    true
}

fn packet(fd: &OwnedFd, buffer: &mut [u8]) {
    if !ready(fd) {
        return;
    }
    // Until none is there.
    while let Ok((length, Some(from))) = recvfrom::<LinkAddr>(fd.as_raw_fd(), buffer) {
        let frame = &mut buffer[..length];
        if from.addr().is_none() || !advance(frame, ETHERNET, true) {
            continue;
        }
        let (to, source) = frame.split_at_mut(6);
        to.swap_with_slice(&mut source[..6]);
        let _ = sendto(fd.as_raw_fd(), frame, &from, MsgFlags::empty());
    }
}

fn through_tun(tun: &Tun, buffer: &mut [u8]) {
    if !ready(tun) {
        return;
    }
    while let Ok(Some(length)) = tun.receive(buffer) {
        // The kernel lowers the hop limit on the way in and out.
        if advance(&mut buffer[..length], 0, false) {
            let _ = tun.send(&buffer[..length]);
        }
    }
}

/// `NFNL_SUBSYS_QUEUE` with `NFQNL_MSG_PACKET`, `NFQNL_MSG_VERDICT`, `NFQNL_MSG_CONFIG` (linux/netfilter/nfnetlink_queue.h).
const PACKET: u16 = 3 << 8;
const VERDICT: u16 = (3 << 8) | 1;
const CONFIG: u16 = (3 << 8) | 2;
const NF_ACCEPT: u32 = 1;

/// A message with one attribute.
fn message(kind: u16, attribute: u16, content: &[u8]) -> Vec<u8> {
    let length = 16 + 4 + 4 + content.len().next_multiple_of(4);
    let mut octets = Vec::with_capacity(length);
    octets.extend((length as u32).to_ne_bytes());
    octets.extend(kind.to_ne_bytes());
    // NLM_F_REQUEST.
    octets.extend(1u16.to_ne_bytes());
    octets.extend([0; 8]);
    // `struct nfgenmsg`: any family, version 0, queue 0.
    octets.extend([0; 4]);
    octets.extend((4 + content.len() as u16).to_ne_bytes());
    octets.extend(attribute.to_ne_bytes());
    octets.extend_from_slice(content);
    octets.resize(length, 0);
    octets
}

fn queue() -> std::io::Result<OwnedFd> {
    let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkNetFilter)?;
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    setsockopt(&fd, sockopt::RcvBuf, &(8 << 20))?;
    // NFQA_CFG_CMD: NFQNL_CFG_CMD_BIND; NFQA_CFG_PARAMS: 65,535 octets of each, NFQNL_COPY_PACKET; NFQA_CFG_QUEUE_MAXLEN.
    for (attribute, content) in [(1, vec![1, 0, 0, 10]), (2, vec![0, 0, 0xff, 0xff, 2]), (3, vec![0, 0, 8, 0])] {
        send(fd.as_raw_fd(), &message(CONFIG, attribute, &content), MsgFlags::empty())?;
    }
    Ok(fd)
}

fn queued(fd: &OwnedFd, buffer: &mut [u8]) {
    if !ready(fd) {
        return;
    }
    while let Ok(length) = recv(fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
        let mut rest = &buffer[..length];
        while let Some(size) = rest.get(..4).and_then(|octets| octets.try_into().ok()).map(u32::from_ne_bytes) {
            let Some(one) = rest.get(..size as usize).filter(|one| one.len() >= 32) else { break };
            // The first attribute is NFQA_PACKET_HDR, which begins with the packet's number.
            if one[4..6] == PACKET.to_ne_bytes() && one[22..24] == 1u16.to_ne_bytes() {
                let content = [&NF_ACCEPT.to_be_bytes()[..], &one[24..28]].concat();
                // NFQA_VERDICT_HDR.
                let _ = send(fd.as_raw_fd(), &message(VERDICT, 2, &content), MsgFlags::empty());
            }
            rest = rest.get((size as usize).next_multiple_of(4)..).unwrap_or_default();
        }
    }
}
