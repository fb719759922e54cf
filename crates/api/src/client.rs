//! Talking to an agent.

use std::{
    fmt,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use segue_model::node::NodeState;
use serde::de::DeserializeOwned;

use crate::{
    capture::CaptureRequest,
    http,
    problem::{ErrorBody, Problem},
    simulation::{InjectReport, SimulationReport, SimulationRequest},
    state::{ApplyReport, DiffReport},
};

/// An agent that applies a large state may need a while.
const PATIENCE: Duration = Duration::from_secs(60);
/// RFC 9110 section 15.5.13.
const PRECONDITION_FAILED: u16 = 412;
/// As often as others may come first; each of them has applied something.
const ATTEMPTS: usize = 16;
const STATE: &str = "/v1/state";

/// Why an agent did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // what each means is its text
pub enum Error {
    #[error(
        "{}: there is no such socket; is segued running? Try `systemctl status segued`, or `segue lab list` and --lab",
        socket.display()
    )]
    NoSocket { socket: PathBuf },
    #[error(
        "{}: nobody listens; segued has ended. Try `systemctl restart segued`, or `segue lab list`",
        socket.display()
    )]
    NobodyListens { socket: PathBuf },
    #[error("{}: permission denied; run as root or join the socket's group", socket.display())]
    Denied { socket: PathBuf },
    #[error("{}: no answer within {} s; look at the agent's log", socket.display(), patience.as_secs())]
    NoAnswer { socket: PathBuf, patience: Duration },
    #[error("{}: {error}; look at the agent's log", socket.display())]
    Unreachable { socket: PathBuf, error: io::Error },
    #[error("{agent}: the connection broke; look at the agent's log")]
    Lost {
        agent: String,
        #[source]
        error: io::Error,
    },
    #[error("{agent}: the answer to {path} is not what this version of segue expects; are both of one version?")]
    OtherVersion {
        agent: String,
        path: String,
        #[source]
        error: serde_json::Error,
    },
    #[error("the state cannot be written as JSON: {0}; report this: it is a fault of Segue")]
    State(serde_json::Error),
    #[error("{agent} refused (status {status}):\n{}", lines(problems))]
    Refused { agent: String, status: u16, problems: Vec<Problem> },
    #[error("{agent} answered {method} {path} with status {status}: {text}")]
    Unexpected { agent: String, method: String, path: String, status: u16, text: String },
    #[error(
        "{agent}: the state came without its revision, so that a change could undo another's; are both of one version?"
    )]
    NoRevision { agent: String },
    #[error("{agent}: others changed the state {ATTEMPTS} times meanwhile; nothing was changed; try again")]
    Contested { agent: String },
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("  {problem}")).collect::<Vec<_>>().join("\n")
}

/// The revision of a desired state: a hash of what it says (the ETag of `GET /v1/state`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision(String);

impl FromStr for Revision {
    type Err = String;

    /// With or without the quotes that it has in HTTP.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
        if bare.is_empty() || !bare.bytes().all(|octet| octet.is_ascii_alphanumeric()) {
            return Err(format!("{text:?} is no revision; take what `segue get revision` says"));
        }
        Ok(Self(bare.to_owned()))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Under which condition a state is applied (RFC 9110 section 13.1).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Condition {
    /// Whatever is applied now.
    #[default]
    Always,
    /// Only if this is what is applied now.
    Is(Revision),
    /// Only if nothing was applied yet.
    Nothing,
}

impl Condition {
    fn header(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Always => None,
            Self::Is(revision) => Some(("If-Match", format!("\"{revision}\""))),
            Self::Nothing => Some(("If-None-Match", "*".to_owned())),
        }
    }
}

/// An agent that can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    socket: PathBuf,
    /// A program that connects, if the socket is elsewhere.
    connect: Vec<String>,
    /// What messages call it.
    name: String,
    patience: Duration,
}

impl Client {
    /// The agent that listens there.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        let socket = socket.into();
        Self { name: socket.display().to_string(), socket, connect: Vec::new(), patience: PATIENCE }
    }

    /// The agent that a program connects to, by its standard input and output: [`http::connect_through`].
    #[must_use]
    pub fn through(connect: Vec<String>) -> Self {
        let name = connect.join(" ");
        Self { socket: PathBuf::from(&name), name, connect, patience: PATIENCE }
    }

    /// With another name in messages than its socket's.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// How long to wait for an answer, instead of a minute.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Gets something.
    ///
    /// # Errors
    /// If the agent does not answer, refuses, or answers something else.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let text = self.text(self.response("GET", path, None)?)?;
        self.parsed(path, &text)
    }

    /// The desired state that was applied last, with its revision.
    ///
    /// # Errors
    /// Those of [`Self::get`]; an agent that gives no revision.
    pub fn state(&self) -> Result<(NodeState, Revision), Error> {
        let mut answer = self.response("GET", STATE, None)?;
        let revision = answer.entity_tag.take().and_then(|tag| tag.parse().ok());
        let text = self.text(answer)?;
        let revision = revision.ok_or_else(|| Error::NoRevision { agent: self.name.clone() })?;
        Ok((self.parsed(STATE, &text)?, revision))
    }

    /// Makes the node what the state says, if the condition holds; with `dry_run` it is only checked.
    ///
    /// # Errors
    /// If the agent does not answer, or refuses.
    pub fn apply(&self, state: &NodeState, condition: &Condition, dry_run: bool) -> Result<ApplyReport, Error> {
        let path = if dry_run { "/v1/state?dry_run=true" } else { STATE };
        let answer = self.put(path, state, condition)?;
        let text = self.text(self.accepted("PUT", path, answer)?)?;
        self.parsed(path, &text)
    }

    /// What applying the state would change.
    ///
    /// # Errors
    /// If the agent does not answer, or refuses.
    pub fn diff(&self, state: &NodeState) -> Result<DiffReport, Error> {
        let body = serde_json::to_string(state).map_err(Error::State)?;
        let text = self.text(self.response("POST", "/v1/diff", Some(&body))?)?;
        self.parsed("/v1/diff", &text)
    }

    /// Changes a part of the desired state. What others apply between the reading and the writing is not lost: the change is
    /// made again on what they applied.
    ///
    /// # Errors
    /// Those of the change; if the agent does not answer, or refuses; if others were faster many times.
    pub fn change<E: From<Error>>(
        &self,
        mut change: impl FnMut(&mut NodeState) -> Result<(), E>,
    ) -> Result<ApplyReport, E> {
        for _ in 0..ATTEMPTS {
            let (mut state, revision) = self.state()?;
            change(&mut state)?;
            let answer = self.put(STATE, &state, &Condition::Is(revision))?;
            if answer.status == PRECONDITION_FAILED {
                continue;
            }
            let text = self.text(self.accepted("PUT", STATE, answer)?)?;
            return Ok(self.parsed(STATE, &text)?);
        }
        Err(Error::Contested { agent: self.name.clone() }.into())
    }

    /// What would become of a packet that comes in by a port.
    ///
    /// # Errors
    /// If the agent does not answer, or there is no such port.
    pub fn simulate(&self, request: &SimulationRequest) -> Result<SimulationReport, Error> {
        self.post("/v1/simulate", request)
    }

    /// Puts a packet in, as if it had come by a port.
    ///
    /// # Errors
    /// If the agent does not answer, or the packet cannot go in there.
    pub fn inject(&self, request: &SimulationRequest) -> Result<InjectReport, Error> {
        self.post("/v1/inject", request)
    }

    fn post<T: DeserializeOwned>(&self, path: &str, body: &impl serde::Serialize) -> Result<T, Error> {
        let body = serde_json::to_string(body).map_err(Error::State)?;
        let text = self.text(self.response("POST", path, Some(&body))?)?;
        self.parsed(path, &text)
    }

    /// Starts a capture. The answer's body grows as packets come.
    ///
    /// # Errors
    /// If the agent does not answer, or refuses.
    pub fn capture(&self, request: &CaptureRequest) -> Result<http::Response, Error> {
        let body = serde_json::to_string(request).map_err(Error::State)?;
        self.response("POST", "/v1/capture", Some(&body))
    }

    /// Asks; the answer's body is still to be read.
    fn response(&self, method: &str, path: &str, body: Option<&str>) -> Result<http::Response, Error> {
        self.accepted(method, path, self.exchange(method, path, body, None)?)
    }

    fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<&str>,
        condition: Option<(&str, &str)>,
    ) -> Result<http::Response, Error> {
        let answer = if self.connect.is_empty() {
            http::request_if(&self.socket, method, path, body, condition, self.patience)
        } else {
            let stream = http::connect_through(&self.connect);
            stream.and_then(|stream| http::exchange(stream, method, path, body, condition, self.patience))
        };
        answer.map_err(|error| self.unreachable(error))
    }

    fn put(&self, path: &str, state: &NodeState, condition: &Condition) -> Result<http::Response, Error> {
        let body = serde_json::to_string(state).map_err(Error::State)?;
        let header = condition.header();
        let header = header.as_ref().map(|(name, value)| (*name, value.as_str()));
        self.exchange("PUT", path, Some(&body), header)
    }

    fn text(&self, response: http::Response) -> Result<String, Error> {
        response.text().map_err(|error| Error::Lost { agent: self.name.clone(), error })
    }

    fn parsed<T: DeserializeOwned>(&self, path: &str, text: &str) -> Result<T, Error> {
        let other = |error| Error::OtherVersion { agent: self.name.clone(), path: path.to_owned(), error };
        serde_json::from_str(text).map_err(other)
    }

    /// The answer itself if the agent did what it was asked, else all that is wrong.
    fn accepted(&self, method: &str, path: &str, response: http::Response) -> Result<http::Response, Error> {
        let status = response.status;
        if status < 300 {
            return Ok(response);
        }
        let text = self.text(response)?;
        let agent = self.name.clone();
        Err(match serde_json::from_str::<ErrorBody>(&text) {
            Ok(body) => Error::Refused { agent, status, problems: body.error },
            Err(_) => Error::Unexpected {
                agent,
                method: method.to_owned(),
                path: path.to_owned(),
                status,
                text: text.trim().to_owned(),
            },
        })
    }

    fn unreachable(&self, error: io::Error) -> Error {
        let socket = self.socket.clone();
        match error.kind() {
            ErrorKind::NotFound => Error::NoSocket { socket },
            ErrorKind::ConnectionRefused => Error::NobodyListens { socket },
            ErrorKind::PermissionDenied => Error::Denied { socket },
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::NoAnswer { socket, patience: self.patience },
            _ => Error::Unreachable { socket, error },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixListener,
    };

    use super::*;

    fn answered(status: &str, body: &str) -> Result<serde_json::Value, Error> {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let server = conversation(&socket, vec![format!("HTTP/1.0 {status}\r\n\r\n{body}")]);
        let result = Client::new(socket).get("/v1/sids");
        server.join().unwrap();
        result
    }

    #[test]
    fn a_missing_socket_says_what_to_do() {
        let error = Client::new("/nonexistent/s").get::<serde_json::Value>("/").unwrap_err().to_string();
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

    fn state(node: &str, tag: Option<u8>) -> String {
        let state = serde_json::json!({"node": node, "source_address": "fc00:5ea::1", "domain": {"sid_blocks": []}});
        let tag = tag.map(|tag| format!("etag: \"{tag}\"\r\n")).unwrap_or_default();
        format!("HTTP/1.0 200 OK\r\n{tag}\r\n{state}")
    }

    fn done() -> String {
        format!("HTTP/1.0 200 OK\r\n\r\n{}", serde_json::to_string(&ApplyReport::default()).unwrap())
    }

    const LATE: &str = "HTTP/1.0 412 Precondition Failed\r\n\r\n\
        {\"error\":[{\"key\":\"state\",\"message\":\"another\",\"remedy\":\"get it again\"}]}";

    fn append(state: &mut NodeState) -> Result<(), Error> {
        state.node.push_str("-changed");
        Ok(())
    }

    #[test]
    fn a_change_is_made_again_when_somebody_else_came_first() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let server = conversation(&socket, vec![state("mine", Some(1)), LATE.into(), state("theirs", Some(2)), done()]);
        Client::new(socket).change(append).unwrap();
        let asked = server.join().unwrap();
        assert!(asked[1].contains("If-Match: \"1\"\r\n") && asked[1].contains("mine-changed"), "{}", asked[1]);
        assert!(asked[3].contains("If-Match: \"2\"\r\n") && asked[3].contains("theirs-changed"), "{}", asked[3]);
    }

    #[test]
    fn a_change_never_writes_without_a_revision_and_does_not_go_on_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let server = conversation(&socket, vec![state("n", None)]);
        let error = Client::new(&socket).change(append).unwrap_err();
        assert!(matches!(error, Error::NoRevision { .. }), "{error}");
        assert_eq!(server.join().unwrap().len(), 1, "nothing was put");
        std::fs::remove_file(&socket).unwrap();
        let answers = (0..ATTEMPTS).flat_map(|_| [state("n", Some(1)), LATE.to_owned()]).collect();
        let server = conversation(&socket, answers);
        let error = Client::new(socket).change(append).unwrap_err();
        assert!(matches!(error, Error::Contested { .. }), "{error}");
        server.join().unwrap();
    }

    #[test]
    fn states_are_applied_under_conditions() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let revision: Revision = "1f".parse().unwrap();
        let conditions = [Condition::Always, Condition::Is(revision.clone()), Condition::Nothing];
        let server = conversation(&socket, [vec![state("n", Some(1))], vec![done(); 4]].concat());
        let client = Client::new(socket);
        let (node, read) = client.state().unwrap();
        assert_eq!(read.to_string(), "1");
        for condition in &conditions {
            client.apply(&node, condition, false).unwrap();
        }
        client.apply(&node, &Condition::Is(revision), true).unwrap();
        let asked = server.join().unwrap();
        assert!(!asked[1].contains("If-"), "{}", asked[1]);
        assert!(asked[2].contains("\r\nIf-Match: \"1f\"\r\n"), "{}", asked[2]);
        assert!(asked[3].contains("\r\nIf-None-Match: *\r\n"), "{}", asked[3]);
        assert!(asked[4].starts_with("PUT /v1/state?dry_run=true ") && asked[4].contains("If-Match"), "{}", asked[4]);
    }

    #[test]
    fn revisions_come_with_and_without_quotes() {
        for text in ["0a1f", "\"0a1f\""] {
            assert_eq!(text.parse::<Revision>().unwrap().to_string(), "0a1f");
        }
        for text in ["", "\"\"", "\"", "*", "W/\"1\"", "a b", "1\r\nX: y", "1,2"] {
            assert!(text.parse::<Revision>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_answer_is_read() {
        assert_eq!(answered("200 OK", "[1]").unwrap(), serde_json::json!([1]));
    }

    #[test]
    fn a_refusal_shows_every_problem() {
        let body = r#"{"error":[{"key":"sids[0]","message":"wrong","remedy":"correct it"}]}"#;
        let error = answered("409 Conflict", body).unwrap_err().to_string();
        assert!(error.contains("status 409") && error.contains("sids[0]: wrong; correct it"), "{error}");
    }
}
