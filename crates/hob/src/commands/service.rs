//! `hob service install|status|uninstall`: lets the service manager start the server.

use clap::{Args as ClapArgs, Subcommand};
use serde_json::json;

use super::confirm::refuse_agents;
use super::{Context, Exit};
use crate::printer::{self, errln, outln};
use crate::service::{self, Service, ServiceState};
use crate::setup_record::SetupRecord;
use crate::socket::client;

/// Start the server with your session: install, show and remove the service
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: ServiceAction,
}

#[derive(Subcommand)]
enum ServiceAction {
    /// Write systemd units for this user, and start the service now and with every session
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
    let mut record = SetupRecord::load(&settings.home);
    let changed = match args.action {
        ServiceAction::Install(_) if service::has_manager() => {
            let is_done = service.state() == ServiceState::Running;
            if !is_done {
                settings.home.prepare()?;
                let is_running = client::hello(&settings.socket).is_ok();
                let save = |record: &SetupRecord| record.save(&settings.home);
                service.install(&mut record, is_running, &save)?;
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
        print(state, &service, changed);
    }
    if settings.passphrase.is_some() && changed && state != ServiceState::Absent {
        errln!(
            "hob: HOB_PASSPHRASE is set here; the service needs it too: `systemctl --user edit hob.service`"
        );
    }
    let is_bad = matches!(args.action, ServiceAction::Status(_)) && state != ServiceState::Running;
    Ok(if is_bad { Exit::Failed } else { Exit::Done })
}

fn print(state: ServiceState, service: &Service, changed: bool) {
    if changed && state == ServiceState::Absent {
        outln!("stopped the service and removed its units");
        return;
    }
    match state {
        ServiceState::NoManager if changed => outln!("removed the units"),
        ServiceState::NoManager => {
            outln!("no systemd of this user is running; start the server yourself: `hob serve`");
        }
        ServiceState::Absent => outln!("the service is not installed"),
        ServiceState::Other => {
            outln!("a unit that Hob did not write is there; Hob leaves it alone")
        }
        ServiceState::Outdated => {
            outln!("the service runs another `hob`; `hob service install` updates it");
        }
        ServiceState::Stopped => outln!("the service is installed and not running"),
        ServiceState::Running if changed => outln!("the service was installed and is running"),
        ServiceState::Running => outln!("the service is running"),
    }
    if state != ServiceState::NoManager {
        for file in service.files().iter().filter(|file| file.exists()) {
            outln!("  {}", file.display());
        }
    }
}
