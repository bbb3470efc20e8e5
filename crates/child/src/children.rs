//! The owner of all children: one thread with a small runtime of its own, so that no child depends
//! on the life of the caller's runtime.

use std::collections::HashMap;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use hob_files::owned;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cgroup::{ControlGroup, ControlGroups};
use crate::child::{Child, ChildState, Exit, Output};
use crate::limits::{Limit, Meter, max_agent_processes};
use crate::peer::Peer;
use crate::record::RunRecord;
use crate::shim;
use crate::shim_link::ShimLink;
use crate::spec::{ChildSpec, Owner, Streams};
use crate::streams::open_streams;
use crate::sweep::{self, RUN_MARKER};
use crate::wire::{Launch, ShimCommand, ShimEvent, has_nul};

/// How long a shim may take to answer.
const START_DEADLINE: Duration = Duration::from_secs(10);

/// How to run children.
#[derive(Debug, Clone)]
pub struct ChildrenOptions {
    /// The executable that becomes the shim when started with [`shim::ARGUMENT`].
    pub shim: PathBuf,
    /// The folder that records the live processes of this run for the next run's sweep.
    pub records: PathBuf,
    /// This run's marker; see [`sweep::Marker`].
    pub marker: sweep::Marker,
    /// The umask agents get; Hob's own is stricter.
    pub umask: u32,
    /// Where the groups of confined children are created, if the kernel is to limit their memory and processes.
    pub control_groups: Option<ControlGroups>,
}

/// Why a child did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program is not installed, or not on the agent's `PATH`.
    #[error("the program `{0}` was not found")]
    NotFound(String),
    /// The program is there but cannot be run.
    #[error("the program `{program}` cannot be run: {error}")]
    NotRunnable { program: String, error: io::Error },
    /// The working folder is missing or not a folder.
    #[error("the working folder {0} does not exist")]
    Folder(PathBuf),
    /// The specification holds a NUL byte or too many bytes for the operating system.
    #[error("the command or the environment of the process is not valid: {0}")]
    Invalid(&'static str),
    /// The kernel supports confinement, but not the one requested.
    #[error("could not start the process in its sandbox: {0}")]
    NotConfined(io::Error),
    /// The owner is closing.
    #[error("cannot start a process: the server is shutting down")]
    Closing,
    /// Any other error of the operating system.
    #[error("could not start the process: {0}")]
    System(#[from] io::Error),
}

/// The owner of all children of a process. Clones share it; when the last clone is dropped, or
/// [`Children::close`] is called, every tree is ended and reaped.
#[derive(Debug, Clone)]
pub struct Children {
    inner: Arc<ChildrenState>,
}

/// Which child, if any, a process descends from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// The process descends from a child with this owner.
    Under(Option<Owner>),
    /// The process does not descend from a child.
    Elsewhere,
    /// The process has ended, so its ancestry is unknown.
    Gone,
}

/// The running shims with the owners of their children.
type Owners = Arc<Mutex<HashMap<i32, Option<Owner>>>>;

#[derive(Debug)]
struct ChildrenState {
    owners: Owners,
    requests: Mutex<Option<mpsc::UnboundedSender<SpawnRequest>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    live: watch::Receiver<usize>,
}

struct SpawnRequest {
    spec: ChildSpec,
    reply: oneshot::Sender<Result<Started, SpawnError>>,
}

/// A child with the descriptors its caller will register with its own runtime.
struct Started {
    child: Child,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
}

impl Children {
    /// Starts the owning thread.
    pub fn new(options: ChildrenOptions) -> io::Result<Children> {
        owned::create_dir_all(&options.records)?;
        let (requests, received) = mpsc::unbounded_channel();
        let (count, live) = watch::channel(0);
        let owners = Owners::default();
        let thread_owners = owners.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new()
            .name("hob-children".into())
            .spawn(move || runtime.block_on(keep(options, thread_owners, received, count)))?;
        Ok(Children {
            inner: Arc::new(ChildrenState {
                owners,
                requests: Mutex::new(Some(requests)),
                thread: Mutex::new(Some(thread)),
                live,
            }),
        })
    }

    /// Starts a child. Returns once its program runs, or with the reason why it does not.
    pub async fn spawn(&self, spec: ChildSpec) -> Result<Child, SpawnError> {
        let (reply, answer) = oneshot::channel();
        let requests = self.inner.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        requests
            .and_then(|requests| requests.send(SpawnRequest { spec, reply }).ok())
            .ok_or(SpawnError::Closing)?;
        let started = answer.await.map_err(|_| SpawnError::Closing)??;
        let mut child = started.child;
        child.stdin = started.stdin.map(pipe::Sender::from_owned_fd).transpose()?;
        child.stdout = started.stdout.map(pipe::Receiver::from_owned_fd).transpose()?;
        Ok(child)
    }

    /// Returns which child the process at the other end of a socket descends from. A shim keeps its whole
    /// tree, so no process that a child starts can leave it.
    pub fn placed(&self, socket: BorrowedFd<'_>) -> Placed {
        let owner_of = |pid: i32| {
            let owners = self.inner.owners.lock().unwrap_or_else(PoisonError::into_inner);
            owners.get(&pid).cloned()
        };
        let own = std::process::id() as i32;
        let peer = Peer::of(socket).ok().flatten();
        let chain =
            peer.and_then(|peer| peer.ancestry(|pid| pid == own || owner_of(pid).is_some()));
        match chain.as_deref() {
            Some([.., last]) => owner_of(*last).map_or(Placed::Elsewhere, Placed::Under),
            _ => Placed::Gone,
        }
    }

    /// Returns how many trees are alive, including those that are being ended.
    pub fn live(&self) -> usize {
        *self.inner.live.borrow()
    }

    /// Ends every tree and returns once all are gone. Later spawns fail.
    pub async fn close(&self) {
        self.inner.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut live = self.inner.live.clone();
        // The sender is dropped when the thread has seen everything end.
        while live.changed().await.is_ok() {}
    }
}

impl Drop for ChildrenState {
    fn drop(&mut self) {
        self.requests.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A few hundred milliseconds at most: the trees are ended by TERM, then KILL.
            let _ = thread.join();
        }
    }
}

/// The thread's main loop: starts children on request, and at the end waits until all trees are gone.
async fn keep(
    options: ChildrenOptions,
    owners: Owners,
    mut requests: mpsc::UnboundedReceiver<SpawnRequest>,
    count: watch::Sender<usize>,
) {
    let options = Arc::new(options);
    let meter = Arc::new(Meter::default());
    let mut number = 0;
    let closing = CancellationToken::new();
    let mut keepers = JoinSet::new();
    loop {
        tokio::select! {
            request = requests.recv() => {
                let Some(SpawnRequest { spec, reply }) = request else { break };
                number += 1;
                let (options, closing) = (options.clone(), closing.clone());
                let (owners, meter) = (owners.clone(), meter.clone());
                count.send_modify(|count| *count += 1);
                keepers.spawn(keep_one(options, owners, meter, spec, number, reply, closing));
            }
            Some(_) = keepers.join_next() => count.send_modify(|count| *count -= 1),
        }
    }
    closing.cancel();
    while keepers.join_next().await.is_some() {
        count.send_modify(|count| *count -= 1);
    }
}

/// Looks after one child from its start to the moment its shim is reaped.
async fn keep_one(
    options: Arc<ChildrenOptions>,
    owners: Owners,
    meter: Arc<Meter>,
    spec: ChildSpec,
    number: u64,
    reply: oneshot::Sender<Result<Started, SpawnError>>,
    closing: CancellationToken,
) {
    let marker = options.marker.of_child(number);
    let mut shim = match start_shim(&options, &spec, &marker) {
        Ok(shim) => shim,
        Err(error) => {
            let _ = reply.send(Err(error));
            return;
        }
    };
    let record = RunRecord::write(&options.records, shim.process.id() as i32, &marker);
    let _owner = OwnerEntry::new(owners, shim.process.id() as i32, spec.owner.clone());
    let (reading, writing) = tokio::io::split(shim.control);
    let mut events = BufReader::new(reading).lines();
    let first = tokio::time::timeout(START_DEADLINE, events.next_line()).await;
    let first = first.ok().and_then(Result::ok).flatten();
    match first.and_then(|line| ShimEvent::decode(&line)) {
        Some(ShimEvent::Started { pid, start }) => {
            record.add(pid, start);
            let (state_sender, state) = watch::channel(ChildState::Running);
            let (command_sender, commands) = mpsc::unbounded_channel::<ShimCommand>();
            let (sink, output) = Output::new(shim.ring);
            let mut child = Child::new(pid, output, state, command_sender);
            child.terminal = shim.is_terminal.then(|| shim.drained.clone());
            let started = Started { child, stdin: shim.stdin.take(), stdout: shim.stdout.take() };
            // A caller that went away meanwhile drops the child, which ends the tree.
            let _ = reply.send(Ok(started));

            let drained = shim.drained;
            let mut draining = JoinSet::new();
            draining.spawn(async move { sink.drain(&drained).await });
            // The kernel sees to the memory of a child that has a control group.
            let mut limits = spec.confinement.map(|confined| confined.limits).unwrap_or_default();
            limits.memory_bytes = limits.memory_bytes.filter(|_| shim.group.is_none());
            let link = ShimLink {
                events,
                writing,
                commands,
                exceeded: meter.exceeded(shim.process.id() as i32, limits),
                group: shim.group.as_ref(),
            };
            let mut exit = link.run(&state_sender, &closing).await;
            reap(&mut shim.process).await;
            if exit.is_none() {
                // The shim was killed from outside, so its tree has no keeper any more.
                sweep::end_marked(&marker).await;
                // The kernel kills the shim with the rest of its control group.
                let ran_out = shim.group.as_ref().is_some_and(ControlGroup::ran_out_of_memory);
                exit = ran_out.then_some(Exit::OverLimit(Limit::Memory));
            }
            record.remove();
            // Everything that the tree wrote must be in the ring before its end is reported.
            let _ = tokio::time::timeout(Duration::from_secs(1), draining.join_next()).await;
            state_sender.send_replace(ChildState::Gone(exit.unwrap_or(Exit::Unknown)));
        }
        other => {
            drop((events, writing));
            reap(&mut shim.process).await;
            record.remove();
            let system = io::Error::from_raw_os_error;
            let error = match other {
                Some(ShimEvent::NotConfined { errno }) => SpawnError::NotConfined(system(errno)),
                Some(ShimEvent::Failed { errno }) => spawn_error(&spec, system(errno)),
                _ => spawn_error(&spec, io::Error::other("Hob's process launcher did not respond")),
            };
            let _ = reply.send(Err(error));
        }
    }
}

fn spawn_error(spec: &ChildSpec, error: io::Error) -> SpawnError {
    let program = spec.program.to_string_lossy().into_owned();
    match error.kind() {
        io::ErrorKind::NotFound if !spec.cwd.is_dir() => SpawnError::Folder(spec.cwd.clone()),
        io::ErrorKind::NotFound => SpawnError::NotFound(program),
        io::ErrorKind::ArgumentListTooLong => SpawnError::Invalid("it is too long"),
        _ => SpawnError::NotRunnable { program, error },
    }
}

struct Shim {
    process: std::process::Child,
    control: tokio::net::UnixStream,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    /// The descriptor that this thread drains: the terminal, or standard error.
    drained: Arc<AsyncFd<OwnedFd>>,
    is_terminal: bool,
    ring: usize,
    group: Option<ControlGroup>,
}

/// Starts the shim with the control socket as its standard input and hands it the launch message.
/// All other descriptors travel over that socket, so nothing can leak into another child.
fn start_shim(
    options: &ChildrenOptions,
    spec: &ChildSpec,
    marker: &str,
) -> Result<Shim, SpawnError> {
    if !spec.cwd.is_dir() {
        return Err(SpawnError::Folder(spec.cwd.clone()));
    }
    let texts = spec.args.iter().chain([&spec.program]);
    if texts.chain(spec.env.iter().flat_map(|(n, v)| [n, v])).any(|text| has_nul(text)) {
        return Err(SpawnError::Invalid("it contains a NUL byte"));
    }
    let mut env = spec.env.clone();
    env.retain(|(name, _)| name != RUN_MARKER);
    env.push((RUN_MARKER.into(), marker.into()));
    let launch = Launch {
        terminal: matches!(spec.streams, Streams::Terminal { .. }),
        umask: options.umask,
        cwd: spec.cwd.clone().into_os_string(),
        program: spec.program.clone(),
        args: spec.args.clone(),
        env,
        confinement: spec.confinement.clone(),
    };

    let streams = open_streams(spec.streams)?;
    let (ours, control) = UnixStream::pair()?;
    let mut command = Command::new(&options.shim);
    command.arg(shim::ARGUMENT).env_clear().current_dir("/");
    command.stdin(OwnedFd::from(control)).stdout(Stdio::null()).stderr(Stdio::null());
    #[allow(clippy::disallowed_methods, reason = "this is the one place that starts a shim")]
    let process = command.spawn()?;
    drop(command);

    // Before the launch, so that everything that the shim starts is in the group.
    let group = control_group(options, spec, process.id());
    let sent = send_launch(&ours, &launch, &streams.child_ends);
    ours.set_nonblocking(true)?;
    if let Err(error) = sent {
        tracing::warn!(%error, "failed to send the launch message to the shim");
    }
    Ok(Shim {
        process,
        control: tokio::net::UnixStream::from_std(ours)?,
        stdin: streams.stdin,
        stdout: streams.stdout,
        drained: Arc::new(watched(streams.drained)?),
        is_terminal: launch.terminal,
        ring: streams.ring,
        group,
    })
}

/// Puts the shim of a confined child into a control group of its own, where Hob has some.
fn control_group(options: &ChildrenOptions, spec: &ChildSpec, shim: u32) -> Option<ControlGroup> {
    let groups = options.control_groups.as_ref()?;
    let memory = spec.confinement.as_ref()?.limits.memory_bytes;
    let group = groups.create(&shim.to_string(), memory, max_agent_processes());
    let group = group.and_then(|group| group.add(shim).map(|()| group));
    group.inspect_err(|error| tracing::warn!(%error, "failed to create a control group")).ok()
}

/// Sends the launch message with the child's descriptors.
fn send_launch(control: &UnixStream, launch: &Launch, child_ends: &[OwnedFd]) -> io::Result<()> {
    let message = launch.encode();
    let fds: Vec<RawFd> = child_ends.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let sent = sendmsg::<()>(
        control.as_raw_fd(),
        &[IoSlice::new(&message)],
        &rights,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )
    .map_err(io_error)?;
    let mut control = control;
    control.write_all(&message[sent..])
}

/// Waits for the shim, whose control socket has already closed: it is gone or about to be.
async fn reap(process: &mut std::process::Child) {
    for delay_ms in [0, 1, 2, 5, 10].into_iter().chain(std::iter::repeat_n(20, 100)) {
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        if let Ok(Some(_)) | Err(_) = process.try_wait() {
            return;
        }
    }
    tracing::error!(pid = process.id(), "a shim closed its control socket but did not exit");
    let _ = process.kill();
    let _ = process.wait();
}

fn io_error(errno: nix::errno::Errno) -> io::Error {
    errno.into()
}

/// Registers a descriptor with this thread's runtime.
fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` owns its descriptor and returns the same one from every call, so it stays
    // open and unchanged for as long as it is registered.
    unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)
}

/// The owner of a shim's tree, registered until this value is dropped.
struct OwnerEntry {
    owners: Owners,
    shim: i32,
}

impl OwnerEntry {
    fn new(owners: Owners, shim: i32, owner: Option<Owner>) -> OwnerEntry {
        owners.lock().unwrap_or_else(PoisonError::into_inner).insert(shim, owner);
        OwnerEntry { owners, shim }
    }
}

impl Drop for OwnerEntry {
    fn drop(&mut self) {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.shim);
    }
}
