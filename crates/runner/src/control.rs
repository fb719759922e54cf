//! The socket that a running service answers on: one word in, one JSON document out.
//!
//! | word | answer |
//! |---|---|
//! | `status` | [`crate::Status`] |
//! | `reload` | `{}`; or `{"error": ".."}`, and all is as it was |
//! | `stop` | `{}`, and it stops |
//! | `hand-over` | what its successor needs ([`crate::handover`]), and it stops once that has it |

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::error::{Error, Result};
use crate::handover;
use crate::status::Status;

/// Octets of a request at most.
const REQUEST_MAX: usize = 64;
/// How long a client may take.
const CLIENT: Duration = Duration::from_secs(5);
/// Where labs keep their files.
const LABS: &str = "/run/segue/lab";
/// How often workers are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What is behind the socket.
pub(crate) trait Served {
    /// Fails if it has failed.
    fn check(&mut self) -> Result<()>;
    /// Takes another configuration; nothing changes if that cannot be.
    fn reload(&mut self) -> Result<()>;
    /// How it is.
    fn status(&self) -> Status;
    /// Hands over to the process behind a connection. True: that has everything, and this one is to end; else all is as it was.
    fn hand_over(&mut self, stream: &UnixStream) -> bool;
}

/// What a request leads to.
#[derive(PartialEq, Eq)]
enum Next {
    GoOn,
    Stop,
    /// The name belongs to another process now.
    Given,
}

/// The socket, which goes with its value.
pub(crate) struct Listener {
    listener: std::os::unix::net::UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Takes the name of a service.
    ///
    /// # Errors
    /// If one of this name runs.
    pub(crate) fn bind(path: &Path) -> Result<Self> {
        if UnixStream::connect(path).is_ok() {
            let message = format!(
                "{} answers: a service of this name runs; stop it, or give this one another name",
                path.display()
            );
            return Err(Error::Usage(message));
        }
        let failed = || Error::file("listen on", path, "be root, or give another path with --socket");
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(failed())?;
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed()(error)),
            _ => {}
        }
        let listener = std::os::unix::net::UnixListener::bind(path).map_err(failed())?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed())?;
        listener.set_nonblocking(true).map_err(failed())?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Takes the name of a service that runs, and is about to hand over.
    ///
    /// # Errors
    /// If the file system does not let it.
    pub(crate) fn replace(path: &Path) -> Result<Self> {
        let beside = path.with_extension("next");
        let mut listener = Self::bind(&beside)?;
        fs::rename(&beside, path).map_err(Error::file("listen on", path, "be root"))?;
        listener.path = path.to_owned();
        Ok(listener)
    }

    /// Answers until the service is told to stop, by a client or a signal, or has handed over to another process.
    pub(crate) fn serve(mut self, service: &mut dyn Served) -> Result<()> {
        let next = self.answer_all(service)?;
        if next == Next::Given {
            // The other one has it, under this name.
            self.path = PathBuf::new();
        }
        Ok(())
    }

    fn answer_all(&self, service: &mut dyn Served) -> Result<Next> {
        let failed = || Error::file("listen on", &self.path, "allow more open files (`ulimit -n`)");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed())?;
        runtime.block_on(async {
            let listener = UnixListener::from_std(self.listener.try_clone().map_err(failed())?).map_err(failed())?;
            let mut terminate = signal(SignalKind::terminate()).map_err(failed())?;
            let mut interrupt = signal(SignalKind::interrupt()).map_err(failed())?;
            let mut hangup = signal(SignalKind::hangup()).map_err(failed())?;
            loop {
                tokio::select! {
                    _ = terminate.recv() => return Ok(Next::Stop),
                    _ = interrupt.recv() => return Ok(Next::Stop),
                    _ = hangup.recv() => match service.reload() {
                        Ok(()) => eprintln!("segue-service: another configuration has taken over"),
                        Err(error) => eprintln!("segue-service: the configuration stays as it is: {error}"),
                    },
                    accepted = listener.accept() => {
                        let Ok((client, _)) = accepted else { continue };
                        match tokio::time::timeout(CLIENT, answer(client, service)).await {
                            Ok(Next::GoOn) | Err(_) => {}
                            Ok(next) => return Ok(next),
                        }
                    }
                    () = tokio::time::sleep(LOOK) => {}
                }
                service.check()?;
            }
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// One request, and what it leads to.
async fn answer(mut client: tokio::net::UnixStream, service: &mut dyn Served) -> Next {
    let mut request = [0; REQUEST_MAX];
    let Ok(length) = client.read(&mut request).await else { return Next::GoOn };
    let word = String::from_utf8_lossy(&request[..length]);
    let (text, next) = match word.trim() {
        "status" => (serde_json::to_string(&service.status()).unwrap_or_default(), Next::GoOn),
        "reload" => match service.reload() {
            Ok(()) => ("{}".to_owned(), Next::GoOn),
            Err(error) => (serde_json::json!({ "error": error.to_string() }).to_string(), Next::GoOn),
        },
        "stop" => ("{}".to_owned(), Next::Stop),
        handover::WORD => {
            // Open files go by system calls of their own.
            let stream = client.into_std().and_then(|stream| stream.set_nonblocking(false).map(|()| stream));
            let given = stream.is_ok_and(|stream| service.hand_over(&stream));
            return if given { Next::Given } else { Next::GoOn };
        }
        other => (serde_json::json!({ "error": format!("{other:?} is no request") }).to_string(), Next::GoOn),
    };
    let _ = client.write_all(text.as_bytes()).await;
    let _ = client.shutdown().await;
    next
}

/// Asks the service behind a socket. None: nobody answers there.
///
/// # Errors
/// What the service refused; or if its answer cannot be read.
pub fn ask(socket: &Path, word: &str) -> Result<Option<serde_json::Value>> {
    let Ok(mut stream) = UnixStream::connect(socket) else { return Ok(None) };
    let failed = || Error::file("ask", socket, "see with `segue service list` whether it runs");
    stream.set_read_timeout(Some(CLIENT)).map_err(failed())?;
    stream.write_all(word.as_bytes()).map_err(failed())?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(failed())?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| failed()(std::io::Error::new(ErrorKind::InvalidData, error)))?;
    match value.get("error").and_then(|said| said.as_str()) {
        Some(said) => {
            let name = socket.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Err(Error::Refused { name, said: said.to_owned() })
        }
        None => Ok(Some(value)),
    }
}

/// The control socket of the service that has this name.
///
/// # Errors
/// As [`ask`].
pub fn find(directory: &Path, name: &str) -> Result<Option<PathBuf>> {
    for socket in sockets(directory) {
        if ask(&socket, "status")?.is_some_and(|status| status["name"] == name) {
            return Ok(Some(socket));
        }
    }
    Ok(None)
}

/// The control sockets of a directory, and of labs if it is the usual one; sorted.
#[must_use]
pub fn sockets(directory: &Path) -> Vec<PathBuf> {
    let labs = fs::read_dir(LABS).into_iter().flatten().flatten().map(|lab| lab.path());
    let labs: Vec<_> = if directory == crate::running::directory() { labs.collect() } else { Vec::new() };
    let all = std::iter::once(directory.to_owned()).chain(labs);
    let entries = all.flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten());
    let mut sockets: Vec<_> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "socket")).collect();
    sockets.sort();
    sockets
}
