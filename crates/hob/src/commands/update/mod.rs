//! `hob update --check`: says whether there is a newer version, and how to upgrade.

mod origin;

use clap::Args as ClapArgs;
use serde_json::json;

use super::{Context, Exit};
use crate::build_id::other_build;
use crate::printer::{self, errln, outln};
use crate::socket::client;
use origin::Origin;

/// Show whether a newer version is available, and how to upgrade
#[derive(ClapArgs)]
#[command(after_help = "\
If Hob was built in a checkout, it asks the Git repository that the checkout was cloned from. If Hob was \
installed from a package, the command only says how to upgrade: there is no public list of versions yet. It changes nothing. Exit code 1 if the repository does not answer.")]
pub struct Args {
    /// Only look; Hob does not replace itself
    #[arg(long, required = true)]
    check: bool,
    /// Print {"version":…,"installed_with":…,"latest":…,"newer":…,"upgrade":…,"server":…,"same_build":…}
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let version = env!("CARGO_PKG_VERSION");
    let program = hob_child::own_program()?;
    let origin = Origin::of(&program);
    let latest = origin.latest();
    let hello = client::hello(&context.settings.socket).ok();
    let other_server = hello.as_ref().and_then(other_build);
    let exit = if latest.is_ok() { Exit::Done } else { Exit::Failed };
    if args.json {
        let found = latest.as_ref().ok().and_then(Option::as_ref);
        let mut value = json!({
            "version": version,
            "program": program.display().to_string(),
            "installed_with": origin.name(),
            "latest": found.map(|latest| &latest.name),
            "newer": found.map(|latest| latest.is_newer),
            "upgrade": origin.upgrade(),
            "server": hello.as_ref().map(|hello| &hello.version),
            "same_build": hello.as_ref().map(|_| other_server.is_none()),
        });
        if let Err(error) = &latest {
            value["error"] = json!(format!("{error:#}"));
        }
        printer::out_json(&value);
        return Ok(exit);
    }
    outln!("hob {version} from {} ({})", origin.name(), program.display());
    match latest {
        Ok(Some(latest)) if latest.is_newer => {
            outln!("{} is available. Upgrade: {}", latest.name, origin.upgrade());
        }
        Ok(Some(_)) => outln!("There is no newer version."),
        Ok(None) => {
            outln!("There is no published source to ask. To upgrade: {}", origin.upgrade());
        }
        Err(error) => {
            errln!("hob: cannot find the latest version: {error:#}");
            errln!("To upgrade: {}", origin.upgrade());
        }
    }
    if let Some(server) = other_server {
        outln!(
            "{server}: `hob service install` starts it again with this version, after its turns have ended; without a service, \
             run `hob stop` and then `hob serve`"
        );
    }
    Ok(exit)
}
