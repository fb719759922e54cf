//! Archives in the kernel's initial file system format (cpio, "new ASCII").

use std::collections::BTreeSet;
use std::path::Path;

/// An initial file system under construction.
#[derive(Debug, Default)]
pub struct Initramfs {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    inodes: u32,
}

impl Initramfs {
    /// Adds a regular file; directories on the way to it are made.
    pub fn file(&mut self, path: &str, executable: bool, content: &[u8]) {
        let path = path.trim_start_matches('/');
        let mut end = 0;
        while let Some(slash) = path[end..].find('/') {
            end += slash;
            self.directory(&path[..end]);
            end += 1;
        }
        self.entry(path, if executable { 0o100_755 } else { 0o100_644 }, content);
    }

    /// Adds a directory whose parent is there already.
    pub fn directory(&mut self, path: &str) {
        let path = path.trim_start_matches('/');
        if self.directories.insert(path.to_owned()) {
            self.entry(path, 0o040_755, &[]);
        }
    }

    /// Adds a file of this machine under the same path.
    ///
    /// # Panics
    ///
    /// When the file cannot be read.
    pub fn copy(&mut self, path: &Path) {
        let content = std::fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        self.file(&path.to_string_lossy(), true, &content);
    }

    /// The finished archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.inodes += 1;
        let links = if mode & 0o040_000 != 0 { 2 } else { 1 };
        // Fields: magic, inode, mode, uid, gid, links, time, size, device (4 numbers), length of the name, checksum.
        let fields = [self.inodes, mode, 0, 0, links, 0, content.len() as u32, 0, 0, 0, 0, path.len() as u32 + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_once_and_before_their_files() {
        let mut archive = Initramfs::default();
        archive.file("/usr/bin/a", true, b"abc");
        archive.file("/usr/bin/b", false, b"");
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        let at = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert!(at("usr\0") < at("usr/bin\0") && at("usr/bin\0") < at("usr/bin/a\0"));
        assert_eq!(text.matches("usr/bin\0").count(), 1);
        assert_eq!(bytes.len() % 4, 0);
        assert!(text.contains("TRAILER!!!"));
    }
}
