//! `hob status`: shows whether a server is running on this home.

use clap::Args as ClapArgs;
use serde_json::json;

use super::{Context, Exit};
use crate::build_id::{RESTART, other_build};
use crate::memory;
use crate::owner_client::unusual;
use crate::printer::{self, errln, outln};
use crate::socket::client;

/// Show whether the server is running; exit code 0 if it answers, 1 if it runs and does not answer, 3 if it does not run
#[derive(ClapArgs)]
pub struct Args {
    /// Print {"running":…,"pid":…,"version":…,"build":…,"same_build":…,"http":…}; with "answers":false if it runs and does not answer
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let socket = &context.settings.socket;
    match client::hello(socket) {
        Ok(hello) => {
            let other = other_build(&hello);
            if args.json {
                let mut value = serde_json::to_value(&hello)?;
                value["running"] = json!(true);
                value["same_build"] = json!(other.is_none());
                printer::out_json(&value);
            } else {
                outln!("hob {} is running (pid {})", hello.version, hello.pid);
                outln!("socket  {}", socket.display());
                outln!("http    {}", hello.http.as_deref().unwrap_or("off"));
                if let Some(progress) = memory::model_progress(&context.settings) {
                    outln!("model   {progress}");
                }
                if let Some(other) = other {
                    outln!("\n{other}; {RESTART}");
                }
            }
            Ok(Exit::Done)
        }
        Err(error) => {
            let unresponsive = context.settings.home.unresponsive_pid(&error);
            if args.json {
                printer::out_json(&match unresponsive {
                    Some(pid) => json!({"running": true, "answers": false, "pid": pid}),
                    None => json!({"running": false}),
                });
            }
            let socket = socket.display();
            if let Some(pid) = unresponsive {
                errln!(
                    "hob: a server is running (pid {pid}), but does not answer on {socket}; if it stays so, run \
                     `kill -KILL {pid}` and start it again with `hob serve`"
                );
                return Ok(Exit::Failed);
            }
            let why = unusual(&error);
            errln!(
                "hob: not running: no server answers on {socket}{why}; start it with `hob serve`"
            );
            Ok(Exit::WrongState)
        }
    }
}
