//! `stdio`: the agent's socket by standard input and output.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};

use crate::{args::Global, target};

/// Copies both ways until the agent ends the connection, or who asks does.
pub fn stdio(global: &Global) -> Result<()> {
    let target = target::one(global)?;
    let remedy = || format!("{}: nobody answers; is segued running?", target.socket.display());
    let socket = UnixStream::connect(&target.socket).with_context(remedy)?;
    let (mut to, mut from) = (socket.try_clone()?, socket);
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut to);
        // Who asked has gone: what he asked for, such as a capture, ends.
        let _ = to.shutdown(Shutdown::Both);
    });
    let mut out = io::stdout().lock();
    let mut part = [0; 16_384];
    loop {
        match io::Read::read(&mut from, &mut part)? {
            0 => return Ok(()),
            length => {
                out.write_all(&part[..length])?;
                // Nobody waits for more before he goes on.
                out.flush()?;
            }
        }
    }
}
