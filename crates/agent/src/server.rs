//! Running: start, serve, end.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use segue_dataplane::{Interfaces, Life};
use segue_model::node::NodeState;
use tokio::{
    net::{TcpListener, UnixListener},
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::{
    actor::Handle,
    api, devices, follow, functions, hold, learned,
    liveness::{
        self,
        journal::{Entries, Journal},
        monitor::{Notice, Routes},
    },
    node::{self, Node},
    options::{Command, Options},
};

/// Answers in flight get so long when the agent ends.
const GRACE: Duration = Duration::from_secs(2);

/// Does what the options say; returns when done or ended by a signal. The calling thread must be in the node's
/// network namespace, and the only one.
///
/// # Errors
/// What kept the agent from starting, with what to do.
pub fn run(options: &Options) -> Result<()> {
    if let Some(Command::Clean) = options.command {
        if is_alive(&options.socket) {
            bail!("segued runs on {}: stop it first (systemctl stop segued)", options.socket.display());
        }
        node::open(options)?.clean()?;
        return forget_functions(options);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(serve(options));
    // Compiling that goes on is for nobody: dropping the runtime would wait for it.
    runtime.shutdown_background();
    result
}

async fn serve(options: &Options) -> Result<()> {
    let listener = claim(&options.socket)?;
    // Whoever waits for the socket may ask at once: the node is as the configuration says before it listens.
    let owned = options.clone();
    let node = Handle::spawn(move || node::start(&owned))?;
    let (life, own) = node.call(|node| Ok((node.plane.life().clone(), node.kernel.port()))).await?;
    let neighbours = follow::Neighbours::spawn(node.clone(), life.clone());
    let neighbours = neighbours.context("ask for neighbours; it takes CAP_NET_ADMIN")?;
    let liveness = watch_functions(&node, life.clone(), neighbours.clone(), options).await?;
    crate::firewall::log::spawn(node.clone(), options.state_dir.clone()).context("start reading what firewalls log")?;
    hold::spawn(node.clone()).context("watch the boundary's table")?;
    devices::spawn(node.clone()).context("watch interfaces")?;
    functions::watch::spawn(node.clone()).context("watch for functions that come")?;
    let own = own.context("the number of the socket for routes")?;
    follow::spawn(node.clone(), life, neighbours, own)
        .context("subscribe to the kernel's notifications; it takes CAP_NET_ADMIN")?;
    let (stop, stopped) = watch::channel(false);
    let context = api::Context {
        node: node.clone(),
        liveness,
        applies: Arc::default(),
        scrapes: Arc::default(),
        stop: stopped.clone(),
    };
    if let Some(address) = options.metrics_listen {
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("--metrics-listen {address}: choose an address of this namespace and a free port")
        })?;
        tokio::spawn(axum::serve(listener, api::metrics_router(context.clone())).into_future());
    }
    let listener = listener.listen()?;
    let server = axum::serve(listener, api::router(context)).with_graceful_shutdown(until(stopped));
    let server = tokio::spawn(server.into_future());
    // Without systemd there is nobody to tell, and that is no error.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    tracing::info!(socket = %options.socket.display(), "ready");
    wait_for_signal().await?;
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    let _ = stop.send(true);
    let _ = tokio::time::timeout(GRACE, server).await;
    // An apply that has begun is not left half done.
    let _ = node.call(|_| Ok(())).await;
    let _ = fs::remove_file(&options.socket);
    if options.detach_on_exit {
        node.call(Node::clean).await?;
        forget_functions(options)?;
        tracing::info!("data plane removed");
    } else {
        tracing::info!("the data plane goes on without the agent");
    }
    Ok(())
}

/// Starts to watch functions: at once in the data plane; kernel routes and the journal follow when the node has time.
async fn watch_functions(
    node: &Handle<Node>,
    life: Life,
    neighbours: follow::Neighbours,
    options: &Options,
) -> Result<liveness::Handle> {
    let (worker, journal) = (node.clone(), Journal::new(&options.state_dir));
    let earlier = node::functions(options);
    let mut known = earlier.clone();
    let watching = liveness::spawn(life, earlier, move |notice: Notice| {
        notice.entries.update(&mut known);
        let (journal, entries) = (journal.clone(), known.clone());
        // Waited for: what happens while the node is at something else is then done at once.
        let done = worker.call_blocking(move |node| {
            let sids = match &notice.routes {
                Routes::Of(sids) => Some(sids),
                Routes::All => None,
            };
            if sids.is_none_or(|sids| !sids.is_empty())
                && let Err(failure) = node.follow_life(sids)
            {
                tracing::error!("routes of functions that went down or came up: {failure}");
            }
            if let Err(failure) = node.repair_functions(&notice.went_down) {
                tracing::warn!("namespaces of functions that failed: {failure}");
            }
            if let Err(error) = journal.save(&entries) {
                tracing::warn!("what is known about functions cannot be saved: {error}");
            }
            Ok(())
        });
        if let Err(failure) = done {
            tracing::error!("functions that went down or came up: {failure}");
        }
    });
    let watching = watching.context("watch functions; it takes CAP_NET_RAW")?;
    let told = watching.clone();
    follow::spawn_path_mtus(node.clone()).context("follow path MTUs")?;
    let labels = learned::watch::Watch::spawn(node.clone()).context("follow labels; it takes CAP_NET_ADMIN")?;
    let observer = move |state: &NodeState, links: &Interfaces| {
        told.configure(state, links);
        labels.follow(state.learn());
        neighbours.ask();
    };
    node.call(move |node| node.observe(Box::new(observer))).await?;
    Ok(watching)
}

fn forget_functions(options: &Options) -> Result<()> {
    let directory = options.state_dir.display();
    Journal::new(&options.state_dir).save(&Entries::new()).with_context(|| format!("forget functions in {directory}"))
}

async fn until(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

async fn wait_for_signal() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM"),
        _ = interrupt.recv() => tracing::info!("SIGINT"),
    }
    Ok(())
}

fn is_alive(socket: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(socket).is_ok()
}

/// The right to the socket's path, before it listens.
struct Claim<'a>(&'a Path);

/// Makes sure that nobody else listens on the path, and that it can be made.
fn claim(socket: &Path) -> Result<Claim<'_>> {
    if is_alive(socket) {
        bail!("another segued listens on {}: stop it first, or choose another --socket", socket.display());
    }
    let directory = socket.parent().ok_or_else(|| anyhow!("--socket {}: is no path of a file", socket.display()))?;
    fs::create_dir_all(directory).with_context(|| format!("make {} for the socket", directory.display()))?;
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove the old socket {}", socket.display()))
        }
        _ => Ok(Claim(socket)),
    }
}

impl Claim<'_> {
    fn listen(self) -> Result<UnixListener> {
        let fail = || format!("listen on {}", self.0.display());
        let listener = UnixListener::bind(self.0).with_context(fail)?;
        // Whoever may write to it controls the node's forwarding.
        fs::set_permissions(self.0, fs::Permissions::from_mode(0o660)).with_context(fail)?;
        Ok(listener)
    }
}
