//! Talking to an agent.

use std::{
    io::{self, ErrorKind},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use segue_agent::problem::ErrorBody;
use segue_lab::http;
use serde::de::DeserializeOwned;

use crate::target::Target;

/// An agent that applies a large state may need a while.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks and reads the whole answer.
pub fn request<T: DeserializeOwned>(target: &Target, method: &str, path: &str, body: Option<&str>) -> Result<T> {
    let text = response(target, method, path, body, PATIENCE)?.text().with_context(|| lost(target))?;
    serde_json::from_str(&text).with_context(|| {
        format!("{}: the answer to {path} is not what this version of segue expects; are both of one version?", target)
    })
}

/// Asks; the answer's body is still to be read.
pub fn response(
    target: &Target,
    method: &str,
    path: &str,
    body: Option<&str>,
    patience: Duration,
) -> Result<http::Response> {
    let response = http::request(&target.socket, method, path, body, patience)
        .map_err(|error| unreachable_agent(&target.socket, &error))?;
    if response.status < 300 {
        return Ok(response);
    }
    let status = response.status;
    let text = response.text().with_context(|| lost(target))?;
    match serde_json::from_str::<ErrorBody>(&text) {
        Ok(body) => {
            let lines: Vec<_> = body.error.iter().map(|problem| format!("  {problem}")).collect();
            bail!("{target} refused (status {status}):\n{}", lines.join("\n"))
        }
        Err(_) => bail!("{target} answered {method} {path} with status {status}: {}", text.trim()),
    }
}

fn lost(target: &Target) -> String {
    format!("{target}: the connection broke; look at the agent's log")
}

fn unreachable_agent(socket: &Path, error: &io::Error) -> anyhow::Error {
    let socket = socket.display();
    match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "{socket}: there is no such socket; is segued running? Try `systemctl status segued`, or `segue lab list` \
             and --lab"
        ),
        ErrorKind::ConnectionRefused => {
            anyhow!("{socket}: nobody listens; segued has ended. Try `systemctl restart segued`, or `segue lab list`")
        }
        ErrorKind::PermissionDenied => anyhow!("{socket}: permission denied; run as root or join the socket's group"),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            anyhow!("{socket}: no answer within {} s; look at the agent's log", PATIENCE.as_secs())
        }
        _ => anyhow!("{socket}: {error}; look at the agent's log"),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixListener,
    };

    use super::*;

    fn answered(status: &str, body: &str) -> Result<serde_json::Value> {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let answer = format!("HTTP/1.0 {status}\r\n\r\n{body}");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let result = request(&Target { node: None, socket }, "GET", "/v1/sids", None);
        server.join().unwrap();
        result
    }

    #[test]
    fn a_missing_socket_says_what_to_do() {
        let target = Target { node: None, socket: "/nonexistent/s".into() };
        let error = request::<serde_json::Value>(&target, "GET", "/", None).unwrap_err().to_string();
        assert!(error.contains("is segued running?"), "{error}");
    }

    #[test]
    fn an_answer_is_read() {
        assert_eq!(answered("200 OK", "[1]").unwrap(), serde_json::json!([1]));
    }

    #[test]
    fn a_refusal_shows_every_problem() {
        let body = r#"{"error":[{"key":"sids[0]","message":"wrong","remedy":"mend it"}]}"#;
        let error = answered("409 Conflict", body).unwrap_err().to_string();
        assert!(error.contains("status 409") && error.contains("sids[0]: wrong; mend it"), "{error}");
    }
}
