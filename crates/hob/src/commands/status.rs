//! `hob status`: shows whether a server is running on this home.

use clap::Args as ClapArgs;
use serde_json::json;

use super::{Context, Exit};
use crate::memory;
use crate::printer::{self, errln, outln};
use crate::socket::client;

/// Show whether the server is running; exit code 0 if it is, else 3
#[derive(ClapArgs)]
pub struct Args {
    /// Print {"running":…,"pid":…,"version":…,"http":…}
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let socket = &context.settings.socket;
    match client::hello(socket) {
        Ok(hello) => {
            if args.json {
                let mut value = serde_json::to_value(&hello)?;
                value["running"] = json!(true);
                printer::out_json(&value);
            } else {
                outln!("hob {} is running (pid {})", hello.version, hello.pid);
                outln!("socket  {}", socket.display());
                outln!("http    {}", hello.http.as_deref().unwrap_or("off"));
                if let Some(progress) = memory::model_progress(&context.settings) {
                    outln!("model   {progress}");
                }
            }
            Ok(Exit::Done)
        }
        Err(error) => {
            if args.json {
                printer::out_json(&json!({"running": false}));
            }
            errln!(
                "hob: not running: no server answers on {} ({error}); start it with `hob serve`",
                socket.display()
            );
            Ok(Exit::WrongState)
        }
    }
}
