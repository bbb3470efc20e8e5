//! The command itself: locks the home, binds the listeners and runs the server.

use std::net::Ipv6Addr;
use std::time::Duration;

use clap::Args as ClapArgs;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::listeners::Listeners;
use super::server;
use super::watchdog::Watchdog;
use crate::commands::{Context, Exit, key};
use crate::logging;
use crate::printer::errln;

/// How long blocking threads may run on after the server has ended.
const BLOCKING_DEADLINE: Duration = Duration::from_secs(1);

/// Run the server: the HTTP API, the web console and the local socket
#[derive(ClapArgs)]
#[command(after_help = "\
Once the server accepts requests, it prints `hob listening on http://ADDRESS`, or with --no-http `hob listening on SOCKET`. \
Only one server can run per home folder ($HOB_HOME): a second one exits with code 3 and prints the pid of the first.

SIGTERM and SIGINT stop the server. Running turns have shutdown_grace_secs seconds to finish, then Hob ends every \
agent. Supports systemd socket activation (LISTEN_FDS).")]
pub struct Args {
    /// Address for HTTP; port 0 picks a free port [default: 127.0.0.1:7717]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<String>,
    /// Serve only the local socket, without HTTP
    #[arg(long)]
    no_http: bool,
}

impl Args {
    /// Returns the flags as settings.
    pub fn overrides(&self) -> Vec<(&'static str, String)> {
        let listen = self.listen.clone().map(|listen| ("listen", listen));
        listen.into_iter().chain(self.no_http.then(|| ("http", "false".to_owned()))).collect()
    }
}

/// Checks that an address has a host and a port.
fn address(text: &str) -> Result<String, &'static str> {
    let is_address = |(host, port): (&str, &str)| {
        let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inside) => inside.parse::<Ipv6Addr>().is_ok(),
            None => !host.is_empty() && !host.contains([':', ' ', '[']),
        };
        is_host && port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
    };
    match text.rsplit_once(':').is_some_and(is_address) {
        true => Ok(text.to_owned()),
        false => Err("must have a host and a port, for example 127.0.0.1:7717"),
    }
}

pub fn run(context: &Context, _args: &Args) -> anyhow::Result<Exit> {
    let settings = &context.settings;
    settings.home.prepare()?;
    // The lock comes before all slow steps, so that a second server exits at once.
    let _lock = match settings.home.take_lock()? {
        Ok(lock) => lock,
        Err(holder) => {
            let home = settings.home.root().display();
            match holder.pid {
                Some(pid) => errln!("hob: already running on {home} (pid {pid})"),
                None => errln!(
                    "hob: another hob command is using the databases in {home}; try again when it is done"
                ),
            }
            return Ok(Exit::WrongState);
        }
    };
    set_resource_limits();
    let _logging = logging::start(&settings.home, &settings.values.log)?;
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    settings.home.remove_temporary_files();
    settings.home.remove_old_capture_states();
    key::finish_rotation(settings)?;
    let listeners = Listeners::bind(settings)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let watchdog = Watchdog::start(runtime.handle(), settings.values.watchdog)?;
    let outcome = runtime.block_on(server::serve(context, listeners));
    drop(watchdog);
    runtime.shutdown_timeout(BLOCKING_DEADLINE);
    outcome.map(|()| Exit::Done)
}

/// Raises the limit of open files, which is 1,024 on many systems although every event stream of a client needs one, and
/// allows no core dump.
fn set_resource_limits() {
    const WANTED: u64 = 65_536;
    // A core dump would contain the key.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    // Without more files the server still works, for fewer clients.
    let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(WANTED.min(hard)), hard);
}
