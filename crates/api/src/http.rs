//! The little of HTTP that talking to an agent over its Unix socket takes. [`crate::client`] is what to use; this is for what it
//! does not do.
//!
//! Requests are HTTP/1.0, so that the answer's body simply ends with the connection: no chunks, no keep-alive.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// An answer whose body is still to be read.
#[derive(Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Entity tag of what was asked for (RFC 9110 section 8.8.3), with its quotes.
    pub entity_tag: Option<String>,
    /// The body, up to the end of the connection.
    pub body: BufReader<UnixStream>,
}

impl Response {
    /// Reads the whole body as text.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn text(mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        self.body.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Sends one request and reads the head of its answer.
///
/// # Errors
/// If the socket does not answer within `patience`, or answers with something else than HTTP.
pub fn request(
    socket: &Path,
    method: &str,
    target: &str,
    json: Option<&str>,
    patience: Duration,
) -> io::Result<Response> {
    request_if(socket, method, target, json, None, patience)
}

/// Starts a program whose standard input and output are a connection to a socket somewhere else. It ends with the connection.
///
/// # Errors
/// If it cannot be started.
pub fn connect_through(command: &[String]) -> io::Result<UnixStream> {
    let (program, arguments) = command.split_first().ok_or_else(|| io::Error::other("there is no program to start"))?;
    let (ours, theirs) = UnixStream::pair()?;
    let (input, output) = (OwnedFd::from(theirs.try_clone()?), OwnedFd::from(theirs));
    let child = Command::new(program).args(arguments).stdin(Stdio::from(input)).stdout(Stdio::from(output)).spawn();
    let mut child = child.map_err(|error| io::Error::other(format!("{program} cannot be started: {error}")))?;
    // Somebody has to take note of its end.
    std::thread::spawn(move || child.wait());
    Ok(ours)
}

/// As [`request`], under a condition: a header field and its value (RFC 9110 section 13.1).
///
/// # Errors
/// As [`request`].
pub fn request_if(
    socket: &Path,
    method: &str,
    target: &str,
    json: Option<&str>,
    condition: Option<(&str, &str)>,
    patience: Duration,
) -> io::Result<Response> {
    exchange(UnixStream::connect(socket)?, method, target, json, condition, patience)
}

/// As [`request_if`], over a connection that is there.
///
/// # Errors
/// As [`request`].
pub fn exchange(
    mut stream: UnixStream,
    method: &str,
    target: &str,
    json: Option<&str>,
    condition: Option<(&str, &str)>,
    patience: Duration,
) -> io::Result<Response> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let body = json.unwrap_or_default();
    let kind = if json.is_some() { "Content-Type: application/json\r\n" } else { "" };
    let condition = condition.map(|(name, value)| format!("{name}: {value}\r\n")).unwrap_or_default();
    let length = body.len();
    let head =
        format!("{method} {target} HTTP/1.0\r\nHost: segued\r\n{kind}{condition}Content-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    read_head(BufReader::new(stream))
}

fn read_head(mut body: BufReader<UnixStream>) -> io::Result<Response> {
    let mut line = String::new();
    body.read_line(&mut line)?;
    let status = parse_status(&line)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("not an HTTP answer: {:?}", line.trim())))?;
    let mut entity_tag = None;
    loop {
        line.clear();
        if body.read_line(&mut line)? == 0 || line.trim().is_empty() {
            return Ok(Response { status, entity_tag, body });
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("etag")
        {
            entity_tag = Some(value.trim().to_owned());
        }
    }
}

fn parse_status(line: &str) -> Option<u16> {
    line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn one_request_one_answer() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            let length = stream.read(&mut head).unwrap();
            stream
                .write_all(b"HTTP/1.0 409 Conflict\r\nETag: \"1f\"\r\ncontent-type: text/plain\r\n\r\nbody\r\n\r\nmore")
                .unwrap();
            String::from_utf8_lossy(&head[..length]).into_owned()
        });
        let response = request(&socket, "POST", "/v1/x", Some("{}"), Duration::from_secs(5)).unwrap();
        assert_eq!((response.status, response.entity_tag.as_deref()), (409, Some("\"1f\"")));
        assert_eq!(response.text().unwrap(), "body\r\n\r\nmore");
        let asked = server.join().unwrap();
        assert!(asked.starts_with("POST /v1/x HTTP/1.0\r\n") && asked.ends_with("\r\n\r\n{}"), "{asked}");
    }

    #[test]
    fn a_program_may_be_the_connection() {
        // It reads the request's head, answers with its first line, and ends with its connection.
        let answer = "read -r first; while read -r line && [ ${#line} -gt 1 ]; do :; done; \
            printf 'HTTP/1.0 200 OK\\r\\n\\r\\n%s' \"$first\"";
        let command = ["sh", "-c", answer].map(str::to_owned);
        let stream = connect_through(&command).unwrap();
        let response = exchange(stream, "GET", "/v1/x", None, None, Duration::from_secs(5)).unwrap();
        assert_eq!(response.text().unwrap().trim(), "GET /v1/x HTTP/1.0");
        for command in [vec![], vec!["/nonexistent".to_owned()]] {
            assert!(connect_through(&command).is_err(), "{command:?}");
        }
    }

    #[test]
    fn other_answers_are_refused() {
        assert_eq!(parse_status("HTTP/1.1 200 OK\r\n"), Some(200));
        assert_eq!(parse_status("SSH-2.0-x\r\n"), None);
        assert_eq!(parse_status("HTTP/1.1 abc\r\n"), None);
        assert_eq!(parse_status(""), None);
    }
}
