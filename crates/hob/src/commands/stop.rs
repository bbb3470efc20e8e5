//! `hob stop`: ends the server.

use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::confirm::refuse_agents;
use super::{Context, Exit, own_path};
use crate::owner_client::unusual;
use crate::printer::{self, errln, outln};
use crate::service::{Service, ServiceState};
use crate::socket::client;

/// How long the server may take to end after the time that running turns have.
const END_TIMEOUT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Stop the server; running turns have `shutdown_grace_secs` to finish
#[derive(ClapArgs)]
#[command(after_help = "Exit code: 3 if the server is not running.")]
pub struct Args {
    /// Print {"stopped":…,"pid":…}
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    refuse_agents(context, "hob stop")?;
    let settings = &context.settings;
    let hello = match client::hello(&settings.socket) {
        Ok(hello) => hello,
        Err(error) => {
            if args.json {
                printer::out_json(&json!({"stopped": false}));
            }
            let socket = settings.socket.display();
            if let Some(pid) = settings.home.unresponsive_pid(&error) {
                errln!(
                    "hob: the server (pid {pid}) does not answer on {socket}; end it with `kill -KILL {pid}`"
                );
                return Ok(Exit::Failed);
            }
            let why = unusual(&error);
            errln!("hob: not running: no server answers on {socket}{why}");
            return Ok(Exit::WrongState);
        }
    };
    let pid = Pid::from_raw(i32::try_from(hello.pid)?);
    // A server behind a forwarded socket is not a process of this machine.
    anyhow::ensure!(
        settings.home.serving_pid() == Some(hello.pid),
        "a server answers (pid {pid}), but it is not the one that uses the home folder {} on this machine; it may run on another \
         machine or in a container: stop it there",
        settings.home.root().display()
    );
    kill(pid, Signal::SIGTERM)
        .map_err(|error| anyhow::anyhow!("cannot stop the server (pid {pid}): {error}"))?;
    let deadline = Instant::now() + settings.values.shutdown_grace + END_TIMEOUT;
    while settings.home.serving_pid() == Some(hello.pid) {
        anyhow::ensure!(
            Instant::now() < deadline,
            "the server (pid {pid}) is still shutting down; run `hob status` to check whether it has stopped"
        );
        std::thread::sleep(POLL_INTERVAL);
    }
    if args.json {
        printer::out_json(&json!({"stopped": true, "pid": hello.pid}));
    } else {
        outln!("stopped the server (pid {pid})");
        let service = own_path().and_then(|hob| Service::new(settings, &hob));
        let is_service = |service: Service| {
            matches!(
                service.state(),
                ServiceState::Stopped | ServiceState::Outdated | ServiceState::Running
            )
        };
        if service.is_ok_and(is_service) {
            outln!(
                "the service starts it again when a hook or an agent needs it; `hob service uninstall` prevents that"
            );
        }
    }
    Ok(Exit::Done)
}
