//! The control socket of a shim whose child runs.

use tokio::io::{AsyncWriteExt, BufReader, Lines, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::cgroup::ControlGroup;
use crate::child::{ChildState, Exit};
use crate::limits::Limit;
use crate::wire::{ShimCommand, ShimEvent};

/// What Hob and a shim say to each other while the child runs.
pub(crate) struct ShimLink<'a, F> {
    pub events: Lines<BufReader<ReadHalf<tokio::net::UnixStream>>>,
    pub writing: WriteHalf<tokio::net::UnixStream>,
    pub commands: mpsc::UnboundedReceiver<ShimCommand>,
    /// Ends when the tree uses more than a limit.
    pub exceeded: F,
    pub group: Option<&'a ControlGroup>,
}

impl<F: Future<Output = Limit>> ShimLink<'_, F> {
    /// Passes commands to the shim and its events on, until it closes the control socket. Returns how the
    /// child exited, if the shim reported it.
    pub async fn run(
        mut self,
        state: &watch::Sender<ChildState>,
        closing: &CancellationToken,
    ) -> Option<Exit> {
        let mut exceeded = std::pin::pin!(self.exceeded);
        let mut over = None;
        let mut exit = None;
        let mut control_open = true;
        loop {
            tokio::select! {
                line = self.events.next_line() => match line.ok().flatten() {
                    Some(line) => if let Some(ShimEvent::Exited { status }) = ShimEvent::decode(&line) {
                        let out_of_memory = self.group.is_some_and(ControlGroup::ran_out_of_memory);
                        let how = match over.or(out_of_memory.then_some(Limit::Memory)) {
                            Some(limit) => Exit::OverLimit(limit),
                            None => Exit::from_wait_status(status),
                        };
                        exit = Some(how);
                        state.send_replace(ChildState::Exited(how));
                    },
                    None => return exit,
                },
                command = self.commands.recv(), if control_open => match command {
                    Some(command) => {
                        let _ = self.writing.write_all(command.encode().as_bytes()).await;
                    }
                    None => {
                        control_open = false;
                        let _ = self.writing.shutdown().await;
                    }
                },
                limit = &mut exceeded, if over.is_none() => {
                    over = Some(limit);
                    let command = ShimCommand::End { grace_ms: 0 };
                    let _ = self.writing.write_all(command.encode().as_bytes()).await;
                }
                () = closing.cancelled(), if control_open => {
                    control_open = false;
                    let _ = self.writing.shutdown().await;
                }
            }
        }
    }
}
