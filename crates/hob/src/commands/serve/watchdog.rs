//! Ends a server whose runtime stands still, so that the service manager starts it again.
//!
//! A call that blocks every worker thread stops HTTP, the socket and all sessions, and no timeout inside of the runtime
//! can notice that. So a thread outside of the runtime watches a task inside of it. What was acknowledged is stored, and
//! the shims end the agents.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::printer::errln;

/// How often the task shows that it runs, and how often the thread looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the message about the end may take to be written.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);
/// The exit code of a server that was ended, as `sysexits.h` has it for an internal error.
const EXIT_CODE: i32 = 70;

/// Watches until it is dropped.
pub struct Watchdog {
    stopping: CancellationToken,
    thread: Thread,
    _handle: JoinHandle<()>,
    _task: JoinSet<()>,
}

impl Watchdog {
    /// Starts to watch a runtime, which may stand still for `limit`. Returns `None` if that is zero.
    pub fn start(runtime: &Handle, limit: Duration) -> io::Result<Option<Watchdog>> {
        if limit.is_zero() {
            return Ok(None);
        }
        let beats = Arc::new(AtomicU64::new(0));
        let mut task = JoinSet::new();
        let beating = beats.clone();
        task.spawn_on(
            async move {
                loop {
                    beating.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(INTERVAL / 2).await;
                }
            },
            runtime,
        );
        let stopping = CancellationToken::new();
        let stopped = stopping.clone();
        let handle = thread::Builder::new()
            .name("hob-watchdog".into())
            .spawn(move || watch(&beats, limit, &stopped))?;
        let thread = handle.thread().clone();
        Ok(Some(Watchdog { stopping, thread, _handle: handle, _task: task }))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stopping.cancel();
        self.thread.unpark();
    }
}

/// Counts its own looks, not the time: a machine that was suspended, or a process that was stopped, has not run either.
fn watch(beats: &AtomicU64, limit: Duration, stopping: &CancellationToken) {
    let (mut last, mut missed) = (0, 0u64);
    while !stopping.is_cancelled() {
        thread::park_timeout(INTERVAL);
        let now = beats.load(Ordering::Relaxed);
        missed = if now == last { missed + 1 } else { 0 };
        last = now;
        if INTERVAL * u32::try_from(missed).unwrap_or(u32::MAX) >= limit {
            end(limit);
        }
    }
}

/// Ends the process. Whatever blocks the runtime may also block the log.
fn end(limit: Duration) -> ! {
    let seconds = limit.as_secs();
    let (sender, written) = std::sync::mpsc::channel();
    let say = move || {
        errln!("hob: the server has been stuck for {seconds} s (watchdog_secs); it stops now");
        tracing::error!(seconds, "the server has been stuck; it stops now");
        let _ = sender.send(());
    };
    if thread::Builder::new().spawn(say).is_ok() {
        let _ = written.recv_timeout(LAST_WORDS_TIMEOUT);
    }
    hob_child::exit_at_once(EXIT_CODE)
}
