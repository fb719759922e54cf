//! What links leave to their devices, as `ethtool -K` sets it: a network of the tests has dozens of ends, and `ethtool` would be started for
//! each.
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

fn set(socket: &UdpSocket, name: &str, mut value: Value) -> io::Result<()> {
    // SAFETY: all zeros is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last octet stays 0.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the kernel reads one `ifreq` and the structure that it names; both live through the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
