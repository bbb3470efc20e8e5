//! `hob service install|status|uninstall`: lets the service manager start the server.

use clap::{Args as ClapArgs, Subcommand};
use serde_json::json;

use super::confirm::refuse_agents;
use super::{Context, Exit};
use crate::build_id::runs_other_build;
use crate::printer::{self, errln, outln};
use crate::service::{self, Service, ServiceState, Started};
use crate::setup_record::SetupRecord;
use crate::socket::client;

/// Install, show or remove the systemd user service, which starts the server when you log in
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: ServiceAction,
}

#[derive(Subcommand)]
enum ServiceAction {
    /// Install systemd user units; start the service now and at every login
    Install(Options),
    /// Show whether the service is running; exit code 0 if it is, else 1
    Status(Options),
    /// Stop the service and remove its units
    Uninstall(Options),
}

#[derive(ClapArgs)]
struct Options {
    /// Print {"state":…,"files":[…],"changed":…}
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    refuse_agents(context, "hob service")?;
    let settings = &context.settings;
    let (ServiceAction::Install(options)
    | ServiceAction::Status(options)
    | ServiceAction::Uninstall(options)) = &args.action;
    let service = Service::new(settings, &super::own_path()?)?;
    let mut record = SetupRecord::load(&settings.home)?;
    let mut started = None;
    let changed = match args.action {
        ServiceAction::Install(_) if service::has_manager() => {
            let is_done =
                service.state() == ServiceState::Running && !runs_other_build(&settings.socket);
            if !is_done {
                settings.home.prepare()?;
                let is_running = client::hello(&settings.socket).is_ok();
                let save = |record: &SetupRecord| record.save(&settings.home);
                started = Some(service.install(&mut record, is_running, &save)?);
            }
            !is_done
        }
        ServiceAction::Uninstall(_) => {
            let removed = service.uninstall(&mut record)?;
            if settings.home.root().exists() {
                record.save(&settings.home)?;
            }
            removed
        }
        _ => false,
    };
    let state = service.state();
    if options.json {
        let files: Vec<_> = service.files().into_iter().filter(|file| file.exists()).collect();
        printer::out_json(&json!({"state": state.as_str(), "files": files, "changed": changed}));
    } else {
        print(&state, &service, changed, started);
    }
    if let Some(note) = service::passphrase_note(settings).filter(|_| started.is_some()) {
        errln!("hob: {note}");
    }
    let is_bad = matches!(args.action, ServiceAction::Status(_)) && state != ServiceState::Running;
    Ok(if is_bad { Exit::Failed } else { Exit::Done })
}

fn print(state: &ServiceState, service: &Service, changed: bool, started: Option<Started>) {
    if changed && *state == ServiceState::Absent {
        outln!("stopped the service and removed its units");
        return;
    }
    match (state, started) {
        (ServiceState::NoManager, _) if changed => outln!("removed the units"),
        (ServiceState::NoManager, _) => {
            outln!("no systemd of this user is running; start the server yourself: `hob serve`");
        }
        (ServiceState::Absent, _) => outln!("the service is not installed"),
        (ServiceState::Other | ServiceState::OtherHome(_), _) => {
            outln!("{}", state.refusal().unwrap_or_default());
        }
        (ServiceState::Outdated, _) => {
            outln!("the service runs another `hob`; `hob service install` updates it");
        }
        (_, Some(Started::NextSession)) => {
            outln!("a server runs already; the service takes over with your next session");
        }
        (ServiceState::Stopped, _) => outln!("the service is installed and not running"),
        (ServiceState::Running, Some(Started::Again)) => {
            outln!("the service was updated and started again");
        }
        (ServiceState::Running, Some(_)) => outln!("the service was installed and is running"),
        (ServiceState::Running, None) => outln!("the service is running"),
    }
    if *state != ServiceState::NoManager {
        for file in service.files().iter().filter(|file| file.exists()) {
            outln!("  {}", file.display());
        }
    }
}
