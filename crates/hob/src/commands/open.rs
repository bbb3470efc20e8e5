//! `hob open`: shows where the console is.

use clap::Args as ClapArgs;
use serde_json::json;

use super::confirm::refuse_agents;
use super::{Context, Exit};
use crate::printer::{self, errln, outln};
use crate::socket::client;

/// Print the URL of the web console (does not open a browser)
#[derive(ClapArgs)]
#[command(after_help = "Exit code: 3 if the server is not running.")]
pub struct Args {
    /// Print {"url":…,"token_file":…}
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    refuse_agents(context, "hob open")?;
    let settings = &context.settings;
    let Ok(hello) = client::hello(&settings.socket) else {
        errln!("hob: not running; start the server with `hob serve`");
        return Ok(Exit::WrongState);
    };
    let Some(url) = hello.http else {
        errln!(
            "hob: the server runs without HTTP, so there is no console; start it without --no-http"
        );
        return Ok(Exit::Failed);
    };
    let token_file = settings.home.admin_token();
    if args.json {
        printer::out_json(&json!({"url": url, "token_file": token_file}));
        return Ok(Exit::Done);
    }
    outln!("{url}");
    match settings.admin_token {
        Some(_) => errln!("sign in with the token in $HOB_ADMIN_TOKEN"),
        None => errln!("sign in with the token in {}", token_file.display()),
    }
    Ok(Exit::Done)
}
