//! Memory that is shared with the kernel: the UMEM and the rings.

#![allow(unsafe_code)] // mmap(), and frames as slices

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;

/// Octets of a frame: a page, the largest that the kernel takes.
pub const FRAME_LENGTH: usize = 4096;

/// A mapping, which ends with its value.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping is memory of the process, not of a thread; what is done with it is up to who has the value.
unsafe impl Send for Mapping {}
// SAFETY: it only says where the memory is.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Memory of this process, zeroed.
    #[cfg(test)]
    pub(crate) fn anonymous(length: usize) -> io::Result<Self> {
        Self::map(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE, -1, 0)
    }

    /// A part of a socket's memory.
    pub(crate) fn of_socket(fd: BorrowedFd<'_>, length: usize, offset: i64) -> io::Result<Self> {
        Self::map(length, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    /// A file's octets, shared with whoever maps them too.
    pub(crate) fn shared(fd: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        Self::map(length, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), 0)
    }

    fn map(length: usize, flags: i32, fd: i32, offset: i64) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, fd, offset) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { address, length })
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn address(&self) -> NonNull<u8> {
        self.address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing that refers to it outlives the value.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.length) };
    }
}

/// The frames' memory: that of a file without a name, so that another process can take over the sockets with it.
#[derive(Debug)]
pub(crate) struct Umem {
    mapping: Mapping,
    file: OwnedFd,
    frame_length: usize,
}

impl Umem {
    pub(crate) fn new(frames: u32, frame_length: usize) -> io::Result<Self> {
        let file = memfd_create(c"segue frames", MFdFlags::MFD_CLOEXEC)?;
        let length = frames as usize * frame_length;
        ftruncate(&file, i64::try_from(length).unwrap_or(i64::MAX))?;
        Self::of(file, frames, frame_length)
    }

    /// That of another process, which has given its file.
    pub(crate) fn of(file: OwnedFd, frames: u32, frame_length: usize) -> io::Result<Self> {
        let mapping = Mapping::shared(file.as_fd(), frames as usize * frame_length)?;
        Ok(Self { mapping, file, frame_length })
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// One frame. Panics if there is no such frame: the caller has it from `Frames`.
    ///
    /// # Safety
    /// As long as the slice lives there is no other one of this frame: the caller has it from `Frames`, which lets nobody else have it, and
    /// the kernel does not write to it.
    pub(crate) unsafe fn frame<'a>(&self, frame: u32) -> &'a mut [u8] {
        let offset = frame as usize * self.frame_length;
        assert!(offset + self.frame_length <= self.mapping.length(), "there is no frame {frame}");
        // SAFETY: it lies in the mapping, and is this caller's alone.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.address().as_ptr().add(offset), self.frame_length) }
    }
}
