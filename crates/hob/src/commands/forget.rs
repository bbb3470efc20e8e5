//! `hob forget`: deletes records from the memory.

use clap::Args as ClapArgs;
use serde_json::json;

use super::{Context, Exit};
use crate::memory;
use crate::printer::{self, errln, outln};

/// Permanently delete one turn or a whole session from the memory; later imports skip it
#[derive(ClapArgs)]
#[command(after_help = "Give RECORD_ID or --session-id.")]
pub struct Args {
    /// ID of the turn's record, as `hob recall` shows it
    #[arg(required_unless_present = "session_id", conflicts_with = "session_id")]
    record_id: Option<String>,
    /// Delete all turns of this session
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// Print {"count":…}
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let arguments = match (&args.record_id, &args.session_id) {
        (Some(id), _) => json!({"record_id": id}),
        (None, session) => json!({"session_id": session}),
    };
    let value = match memory::call_tool(&context.settings, "memory_forget", arguments)? {
        Ok(value) => value,
        Err(why) => {
            errln!("hob: {why}");
            return Ok(Exit::Failed);
        }
    };
    if args.json {
        printer::out_json(&value);
    } else {
        match value["count"].as_u64().unwrap_or_default() {
            0 => outln!("no record has this ID"),
            1 => outln!("deleted 1 record"),
            count => outln!("deleted {count} records"),
        }
    }
    Ok(Exit::Done)
}
