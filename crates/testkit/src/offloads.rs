//! What links leave to their devices, as `ethtool -K` sets it, and that they are up: a network of the tests has dozens of ends, and `ethtool` and
//! `ip` would be started for each.
#![allow(unsafe_code)] // ioctl() has no safe wrapper for this request

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// `ETHTOOL_STXCSUM` and `ETHTOOL_SGRO` of linux/ethtool.h.
const TRANSMIT_CHECKSUMS: u32 = 0x17;
const GRO: u32 = 0x2c;

/// `struct ethtool_value` of linux/ethtool.h.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `ethtool -K NAME gro on tx off` for interfaces of this thread's namespace.
pub fn suit_xdp<'a>(names: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
    // Any socket takes requests about interfaces.
    let socket = UdpSocket::bind("[::]:0")?;
    for name in names {
        for (command, data) in [(GRO, 1), (TRANSMIT_CHECKSUMS, 0)] {
            set(&socket, name, Value { command, data })?;
        }
    }
    Ok(())
}

/// `ip link set NAME up` for interfaces of this thread's namespace.
pub fn bring_up<'a>(names: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
    let socket = UdpSocket::bind("[::]:0")?;
    for name in names {
        let mut request = asked(name);
        control(&socket, libc::SIOCGIFFLAGS as _, &mut request)?;
        // SAFETY: the kernel has just filled in the flags.
        request.ifr_ifru.ifru_flags = unsafe { request.ifr_ifru.ifru_flags } | libc::IFF_UP as libc::c_short;
        control(&socket, libc::SIOCSIFFLAGS as _, &mut request)?;
    }
    Ok(())
}

/// Whether the kernel, which finds out in the background, knows that all of them have a carrier.
pub fn are_running<'a>(names: impl IntoIterator<Item = &'a str>) -> io::Result<bool> {
    let socket = UdpSocket::bind("[::]:0")?;
    for name in names {
        let mut request = asked(name);
        control(&socket, libc::SIOCGIFFLAGS as _, &mut request)?;
        // SAFETY: the kernel has just filled in the flags.
        if unsafe { request.ifr_ifru.ifru_flags } & libc::IFF_RUNNING as libc::c_short == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

fn set(socket: &UdpSocket, name: &str, mut value: Value) -> io::Result<()> {
    let mut request = asked(name);
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // `value` lives through the call.
    control(socket, libc::SIOCETHTOOL as _, &mut request)
}

/// A request about the interface.
fn asked(name: &str) -> libc::ifreq {
    // SAFETY: all zeros is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last octet stays 0.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn control(socket: &UdpSocket, request: libc::Ioctl, about: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the kernel reads and writes one `ifreq`, and what it names, which the caller keeps.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut *about) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
