//! `hob status`: shows whether a server is running on this home.

use clap::Args as ClapArgs;
use serde_json::json;

use super::{Context, Exit};
use crate::memory;
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
                println!("{value}");
            } else {
                println!("hob {} is running (pid {})", hello.version, hello.pid);
                println!("socket  {}", socket.display());
                println!("http    {}", hello.http.as_deref().unwrap_or("off"));
                if let Some(progress) = memory::model_progress(&context.settings) {
                    println!("model   {progress}");
                }
            }
            Ok(Exit::Done)
        }
        Err(error) => {
            if args.json {
                println!("{}", json!({"running": false}));
            }
            eprintln!(
                "hob: not running: no server answers on {} ({error}); start it with `hob serve`",
                socket.display()
            );
            Ok(Exit::WrongState)
        }
    }
}
