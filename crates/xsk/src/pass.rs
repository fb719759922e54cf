//! Open files from one process to another, by a Unix socket.

#![allow(unsafe_code)] // files that arrive are owned from then on

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Open files that the kernel takes in one message at most (`SCM_MAX_FD`).
pub const FILES_MAX: usize = 253;
/// Octets that come with them at most.
const LONGEST: u32 = 1 << 28;

/// Sends octets with open files.
///
/// # Errors
/// If there are too many files, or nobody is there.
pub fn send(stream: &UnixStream, octets: &[u8], files: &[OwnedFd]) -> io::Result<()> {
    let length = u32::try_from(octets.len()).map_err(io::Error::other)?;
    let numbers: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
    if numbers.len() > FILES_MAX {
        return Err(io::Error::other(format!("{} open files are too many for one message", numbers.len())));
    }
    let head = length.to_be_bytes();
    let rights = [ControlMessage::ScmRights(&numbers)];
    sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&head)], &rights, MsgFlags::MSG_NOSIGNAL, None)?;
    (&*stream).write_all(octets)
}

/// Receives octets with open files.
///
/// # Errors
/// If the other side has gone, or sends something else.
pub fn receive(stream: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut head = [0; 4];
    let mut space = nix::cmsg_space!([RawFd; FILES_MAX]);
    let mut files = Vec::new();
    {
        let mut into = [IoSliceMut::new(&mut head)];
        let message = recvmsg::<()>(stream.as_raw_fd(), &mut into, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
        for part in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = part {
                // SAFETY: they have just arrived, and nobody else has them.
                files.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
            }
        }
        if message.bytes != 4 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
    }
    let length = u32::from_be_bytes(head);
    if length > LONGEST {
        return Err(io::Error::other("what comes is no message of a service"));
    }
    let mut octets = vec![0; length as usize];
    (&*stream).read_exact(&mut octets)?;
    Ok((octets, files))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn octets_and_files_arrive() {
        let (here, there) = UnixStream::pair().unwrap();
        let files = || (0..3).map(|_| OwnedFd::from(File::open("/dev/zero").unwrap())).collect::<Vec<_>>();
        send(&here, &[7; 70_000][..1000], &files()).unwrap();
        send(&here, b"", &[]).unwrap();
        let (octets, got) = receive(&there).unwrap();
        assert_eq!((octets, got.len()), (vec![7; 1000], 3));
        let mut read = [1; 4];
        File::from(got.into_iter().next().unwrap()).read_exact(&mut read).unwrap();
        assert_eq!(read, [0; 4]);
        assert_eq!(receive(&there).unwrap().0, b"");
        drop(here);
        assert_eq!(receive(&there).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
