//! The two ends of a source's way: sockets in the namespaces of its hosts.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use segue_host::Namespace;
use segue_model::topology::TrafficProtocol;

use super::Source;
use super::message::{echo_reply, echo_request};
use crate::error::{LabError, Result};

/// How long a receiver waits before it looks whether it is still wanted.
const LOOK_MS: i64 = 50;
/// How long a TCP connection, or one message on it, may take.
const CONNECTION: Duration = Duration::from_secs(10);
/// Between two tries of a connection that was refused: the lab's own listener is there, but not the way.
const AGAIN: Duration = Duration::from_millis(50);

/// Octets of the kernel's memory for what has arrived and was not taken yet: a second of ten thousand packets. What waits for a service that is being
/// replaced arrives all at once, and so does what is sent by a process that had no turn for a while; the default holds less than 300 packets.
const ROOM: usize = 16 << 20;

/// The end that sends.
pub(super) enum Sender {
    Udp { socket: UdpSocket, to: SocketAddr },
    Tcp { near: SocketAddr, to: SocketAddr, namespace: String, stream: Option<TcpStream> },
    Icmp { socket: Arc<OwnedFd>, to: SockaddrStorage, ipv6: bool, identifier: u16 },
}

/// The end where packets arrive: the other host; with ICMP the first, which gets the answers.
pub(super) enum Receiver {
    Udp(UdpSocket),
    Tcp(TcpListener),
    Icmp { socket: Arc<OwnedFd>, ipv6: bool, identifier: u16 },
}

/// Opens both ends, and binds them.
pub(super) fn open(source: &Source) -> Result<(Sender, Receiver)> {
    let place = format!("the sockets of traffic {}", source.name);
    let failed = || LabError::io("open", &place, "see with `segue lab exec` and `ss -anp` who has the ports");
    let near = SocketAddr::new(source.source, source.source_port.unwrap_or(0));
    let to = SocketAddr::new(source.destination, source.port);
    match source.protocol {
        TrafficProtocol::Udp => {
            let far = inside(&source.to_namespace, || UdpSocket::bind(to))?.map_err(failed())?;
            setsockopt(&far, sockopt::RcvBufForce, &ROOM).map_err(io::Error::from).map_err(failed())?;
            far.set_read_timeout(Some(Duration::from_millis(LOOK_MS.unsigned_abs()))).map_err(failed())?;
            let socket = inside(&source.from_namespace, || UdpSocket::bind(near))?.map_err(failed())?;
            Ok((Sender::Udp { socket, to }, Receiver::Udp(far)))
        }
        TrafficProtocol::Tcp => {
            let far = inside(&source.to_namespace, || TcpListener::bind(to))?.map_err(failed())?;
            far.set_nonblocking(true).map_err(failed())?;
            let sender = Sender::Tcp { near, to, namespace: source.from_namespace.clone(), stream: None };
            Ok((sender, Receiver::Tcp(far)))
        }
        TrafficProtocol::Icmp => {
            let ipv6 = source.destination.is_ipv6();
            let identifier = u16::try_from(std::process::id() & 0xffff).unwrap_or_default();
            let opened = inside(&source.from_namespace, || echo_socket(near))?;
            let socket = Arc::new(opened.map_err(io::Error::from).map_err(failed())?);
            let to = SockaddrStorage::from(SocketAddr::new(source.destination, 0));
            let receiver = Receiver::Icmp { socket: Arc::clone(&socket), ipv6, identifier };
            Ok((Sender::Icmp { socket, to, ipv6, identifier }, receiver))
        }
    }
}

fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    Ok(Namespace::open(namespace)?.inside(work)?)
}

fn echo_socket(near: SocketAddr) -> nix::Result<OwnedFd> {
    let (family, protocol) = match near.ip() {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
    };
    let fd = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(near.ip(), 0)))?;
    setsockopt(&fd, sockopt::RcvBufForce, &ROOM)?;
    setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::milliseconds(LOOK_MS))?;
    Ok(fd)
}

impl Sender {
    /// Sends a message.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp { socket, to } => socket.send_to(message, *to).map(drop),
            Self::Icmp { socket, to, ipv6, identifier } => {
                let request = echo_request(*ipv6, *identifier, message);
                Ok(sendto(socket.as_raw_fd(), &request, to, MsgFlags::empty()).map(drop)?)
            }
            Self::Tcp { near, to, namespace, stream } => {
                if stream.is_none() {
                    *stream = Some(connected(*near, *to, namespace)?);
                }
                stream.as_mut().map_or(Ok(()), |stream| stream.write_all(message))
            }
        }
    }

    /// Whether a failure is the end of it: not of datagrams, each of which is on its own.
    pub(super) fn ends_with_a_failure(&self) -> bool {
        matches!(self, Self::Tcp { .. })
    }
}

/// A connection; tried again and again for a while.
fn connected(near: SocketAddr, to: SocketAddr, namespace: &str) -> io::Result<TcpStream> {
    let once = || -> nix::Result<OwnedFd> {
        let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let fd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&fd, sockopt::ReuseAddr, &true)?;
        // Also how long the kernel tries to connect.
        setsockopt(&fd, sockopt::SendTimeout, &TimeVal::seconds(3))?;
        bind(fd.as_raw_fd(), &SockaddrStorage::from(near))?;
        connect(fd.as_raw_fd(), &SockaddrStorage::from(to))?;
        Ok(fd)
    };
    let begun = Instant::now();
    loop {
        let tried =
            Namespace::open(namespace).and_then(|namespace| namespace.inside(once)).map_err(io::Error::other)?;
        match tried {
            Ok(fd) => {
                let stream = TcpStream::from(fd);
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(CONNECTION))?;
                return Ok(stream);
            }
            Err(Errno::EADDRINUSE) => return Err(Errno::EADDRINUSE.into()),
            Err(error) if begun.elapsed() >= CONNECTION => return Err(error.into()),
            Err(_) => std::thread::sleep(AGAIN),
        }
    }
}

impl Receiver {
    /// Gives all that comes to `take` until `ended`.
    ///
    /// # Errors
    /// What the kernel says of a socket that works no more.
    pub(super) fn receive(&self, size: usize, ended: &AtomicBool, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 16];
        while !ended.load(Ordering::Relaxed) {
            match self {
                Self::Udp(socket) => match socket.recv(&mut buffer) {
                    Ok(length) => take(buffer.get(..length).unwrap_or_default()),
                    Err(error) => wait(error)?,
                },
                Self::Icmp { socket, ipv6, identifier } => {
                    match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()).map_err(io::Error::from) {
                        Ok(length) => {
                            let octets = buffer.get(..length).unwrap_or_default();
                            echo_reply(*ipv6, *identifier, octets).into_iter().for_each(&mut take);
                        }
                        Err(error) => wait(error)?,
                    }
                }
                Self::Tcp(listener) => match listener.accept() {
                    Ok((stream, _)) => messages(stream, size, ended, &mut take)?,
                    Err(error) => {
                        wait(error)?;
                        std::thread::sleep(Duration::from_millis(2));
                    }
                },
            }
        }
        Ok(())
    }
}

/// What only means that nothing has come yet; or an ICMP error about what another socket of the port has sent.
fn wait(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock
        | io::ErrorKind::TimedOut
        | io::ErrorKind::Interrupted
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::ConnectionAborted => Ok(()),
        _ => Err(error),
    }
}

/// Messages of a connection, until it ends.
fn messages(mut stream: TcpStream, size: usize, ended: &AtomicBool, take: &mut impl FnMut(&[u8])) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_millis(LOOK_MS.unsigned_abs())))?;
    let mut message = vec![0; size];
    let mut filled = 0;
    while !ended.load(Ordering::Relaxed) {
        match stream.read(&mut message[filled..]) {
            Ok(0) => return Ok(()),
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => wait(error)?,
        }
        if filled == size {
            take(&message);
            filled = 0;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As when a service that was replaced lets go what has waited for it, and nobody reads yet.
    #[test]
    #[ignore = "needs root"]
    fn a_burst_waits_for_who_receives() {
        let namespace = segue_host::Temporary::make("sg-t-", "burst").unwrap();
        let up = ["link", "set", "lo", "up"];
        segue_host::Run::new("ip", up).inside(namespace.name()).text().unwrap();
        let source = Source {
            name: "burst".to_owned(),
            from_namespace: namespace.name().to_owned(),
            to_namespace: namespace.name().to_owned(),
            source: "::1".parse().unwrap(),
            destination: "::1".parse().unwrap(),
            protocol: TrafficProtocol::Udp,
            from: "a".to_owned(),
            to: "b".to_owned(),
            port: 7000,
            source_port: None,
            rate: 1.0,
            count: None,
            seconds: None,
            size: 200,
            delay_ms: 0,
        };
        let (mut sender, receiver) = open(&source).unwrap();
        for _ in 0..2000 {
            sender.send(&[7; 200]).unwrap();
        }
        let (ended, mut received) = (AtomicBool::new(false), 0);
        let (told, is_told) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            // What has arrived is there at once; what has not is waited for no longer than this.
            let ended = &ended;
            scope.spawn(move || {
                let _ = is_told.recv_timeout(Duration::from_secs(5));
                ended.store(true, Ordering::Relaxed);
            });
            let take = |_: &[u8]| {
                received += 1;
                if received == 2000 {
                    let _ = told.send(());
                }
            };
            receiver.receive(200, ended, take).unwrap();
        });
        assert_eq!(received, 2000);
    }
}
