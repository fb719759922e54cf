//! Talking to an agent.

use std::{
    io::{self, ErrorKind},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use segue_agent::{apply::ApplyReport, problem::ErrorBody};
use segue_lab::http;
use segue_model::node::NodeState;
use serde::de::DeserializeOwned;

use crate::target::Target;

/// An agent that applies a large state may need a while.
const PATIENCE: Duration = Duration::from_secs(60);
/// RFC 9110 section 15.5.13.
const PRECONDITION_FAILED: u16 = 412;

/// Asks and reads the whole answer.
pub fn request<T: DeserializeOwned>(target: &Target, method: &str, path: &str, body: Option<&str>) -> Result<T> {
    let text = response(target, method, path, body, PATIENCE)?.text().with_context(|| lost(target))?;
    serde_json::from_str(&text).with_context(|| other_version(target, path))
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
    accepted(target, method, path, response)
}

/// Changes a part of the desired state. What others apply between the reading and the writing is not lost: the change is made
/// again on what they applied.
pub fn change(target: &Target, mut change: impl FnMut(&mut NodeState) -> Result<()>) -> Result<ApplyReport> {
    /// As often as others may come first; each of them has applied something.
    const ATTEMPTS: usize = 16;
    let path = "/v1/state";
    for _ in 0..ATTEMPTS {
        let mut answer = response(target, "GET", path, None, PATIENCE)?;
        let revision = answer.entity_tag.take();
        let text = answer.text().with_context(|| lost(target))?;
        let mut state: NodeState = serde_json::from_str(&text).with_context(|| other_version(target, path))?;
        change(&mut state)?;
        let body = serde_json::to_string(&state)?;
        let answer = http::request_if(&target.socket, "PUT", path, Some(&body), revision.as_deref(), PATIENCE)
            .map_err(|error| unreachable_agent(&target.socket, &error))?;
        if answer.status == PRECONDITION_FAILED {
            continue;
        }
        let text = accepted(target, "PUT", path, answer)?.text().with_context(|| lost(target))?;
        return serde_json::from_str(&text).with_context(|| other_version(target, path));
    }
    bail!("{target}: others changed the state {ATTEMPTS} times meanwhile; nothing was changed; try again")
}

/// The answer itself if the agent did what it was asked, else all that is wrong.
fn accepted(target: &Target, method: &str, path: &str, response: http::Response) -> Result<http::Response> {
    let status = response.status;
    if status < 300 {
        return Ok(response);
    }
    let text = response.text().with_context(|| lost(target))?;
    match serde_json::from_str::<ErrorBody>(&text) {
        Ok(body) => {
            let lines: Vec<_> = body.error.iter().map(|problem| format!("  {problem}")).collect();
            bail!("{target} refused (status {status}):\n{}", lines.join("\n"))
        }
        Err(_) => bail!("{target} answered {method} {path} with status {status}: {}", text.trim()),
    }
}

fn other_version(target: &Target, path: &str) -> String {
    format!("{target}: the answer to {path} is not what this version of segue expects; are both of one version?")
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

    /// Answers requests one after the other; returns what each asked.
    fn conversation(socket: &Path, answers: Vec<String>) -> std::thread::JoinHandle<Vec<String>> {
        let listener = UnixListener::bind(socket).unwrap();
        std::thread::spawn(move || {
            let ask = |answer: &String| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = Vec::new();
                let mut part = [0; 4096];
                let whole = |asked: &str| match asked.split_once("\r\n\r\n") {
                    Some((head, body)) => head.contains(&format!("Content-Length: {}", body.len())),
                    None => false,
                };
                while !whole(&String::from_utf8_lossy(&asked)) {
                    let length = stream.read(&mut part).unwrap();
                    asked.extend_from_slice(&part[..length]);
                }
                stream.write_all(answer.as_bytes()).unwrap();
                String::from_utf8(asked).unwrap()
            };
            answers.iter().map(ask).collect()
        })
    }

    #[test]
    fn a_change_is_made_again_when_somebody_else_came_first() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let state = |node: &str, tag: u8| {
            let state =
                serde_json::json!({"node": node, "source_address": "fc00:5ea::1", "domain": {"sid_blocks": []}});
            format!("HTTP/1.0 200 OK\r\netag: \"{tag}\"\r\n\r\n{state}")
        };
        let late = r#"{"error":[{"key":"state","message":"another","remedy":"get it again"}]}"#;
        let done = serde_json::to_string(&ApplyReport::default()).unwrap();
        let server = conversation(
            &socket,
            vec![
                state("mine", 1),
                format!("HTTP/1.0 412 Precondition Failed\r\n\r\n{late}"),
                state("theirs", 2),
                format!("HTTP/1.0 200 OK\r\n\r\n{done}"),
            ],
        );
        let target = Target { node: None, socket };
        change(&target, |state| {
            state.node.push_str("-changed");
            Ok(())
        })
        .unwrap();
        let asked = server.join().unwrap();
        assert!(asked[1].contains("If-Match: \"1\"\r\n") && asked[1].contains("mine-changed"), "{}", asked[1]);
        assert!(asked[3].contains("If-Match: \"2\"\r\n") && asked[3].contains("theirs-changed"), "{}", asked[3]);
    }

    #[test]
    fn an_answer_is_read() {
        assert_eq!(answered("200 OK", "[1]").unwrap(), serde_json::json!([1]));
    }

    #[test]
    fn a_refusal_shows_every_problem() {
        let body = r#"{"error":[{"key":"sids[0]","message":"wrong","remedy":"fix it"}]}"#;
        let error = answered("409 Conflict", body).unwrap_err().to_string();
        assert!(error.contains("status 409") && error.contains("sids[0]: wrong; fix it"), "{error}");
    }
}
