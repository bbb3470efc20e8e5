//! `hob stats`: what the memory holds, in numbers.

use clap::Args as ClapArgs;
use clap_complete::ArgValueCompleter;
use serde_json::Map;

use super::candidates;
use super::notes::call;
use super::{Context, Exit};
use crate::printer::outln;
use crate::view::View;

/// Count what the memory holds
#[derive(ClapArgs)]
pub struct Args {
    /// Count the turns of this app's sessions instead of those in your own memory
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(candidates::apps))]
    app: Option<String>,
    /// Print {"turns":…,"sessions":…,…}
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    call(context, args.app.as_deref(), "memory_stats", Map::new(), args.json, |answer| {
        let view = View::of_stdout();
        for key in ["turns", "sessions", "projects", "sealed", "superseded", "forgotten"] {
            outln!("{key:<12} {}", answer[key]);
        }
        if let Some(last) = answer["last_ts"].as_str() {
            outln!("{:<12} {}", "latest turn", view.time(last));
        }
        let backlog = &answer["backlog"];
        outln!("{:<12} {} files, {} bytes", "waiting", backlog["files"], backlog["bytes"]);
        outln!("{:<12} {}", "health", answer["health"].as_str().unwrap_or_default());
    })
}
