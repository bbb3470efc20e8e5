//! `hob recall`: asks the memory from a terminal.

use std::time::Duration;

use clap::Args as ClapArgs;
use hob_domain::memory::{Principal, RecordId};
use hob_mcp::{Hit, RecallResult};
use serde_json::{Map, Value, json};

use super::{Context, Exit};
use crate::memory;
use crate::settings::Resolved;
use crate::socket::client::{Connection, DEADLINE};
use crate::socket::{Answer, Call};

/// Find what was said in past sessions
#[derive(ClapArgs)]
pub struct Args {
    /// What to look for: a question, names, paths, an error text
    #[arg(required = true)]
    cue: Vec<String>,
    /// A folder or a project's name; "*" for all [default: the project of this folder]
    #[arg(long)]
    project: Option<String>,
    /// Only this session
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// Not before this date or time
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Not after this date or time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// The most hits
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    /// About how many tokens the hits may have together
    #[arg(long, value_name = "N", default_value_t = 4000)]
    budget_tokens: usize,
    /// Show secrets as they were said
    #[arg(long)]
    unseal: bool,
    /// Print {"hits":[…],"budget_used":…,"omitted":…,"partial":…}
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let settings = &context.settings;
    let mut arguments = Map::new();
    arguments.insert("cue".to_owned(), json!(args.cue.join(" ")));
    arguments.insert("limit".to_owned(), json!(args.limit));
    arguments.insert("budget_tokens".to_owned(), json!(args.budget_tokens));
    let optional = [
        ("project", &args.project),
        ("session_id", &args.session_id),
        ("since", &args.since),
        ("until", &args.until),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            // A folder is meant as seen from here.
            let value = match name {
                "project" if value.starts_with('.') || value.contains('/') => {
                    std::path::absolute(value)?.to_string_lossy().into_owned()
                }
                _ => value.clone(),
            };
            arguments.insert(name.to_owned(), json!(value));
        }
    }
    let value = match memory::call_tool(settings, "memory_recall", Value::Object(arguments))? {
        Ok(value) => value,
        Err(why) => {
            eprintln!("hob: {why}");
            return Ok(Exit::Failed);
        }
    };
    let mut result: RecallResult = serde_json::from_value(value)?;
    if args.unseal {
        for hit in &mut result.hits {
            match unseal(settings, &hit.record_id) {
                Ok(text) => hit.text = text,
                Err(error) => eprintln!("hob: {}: {error:#}", hit.record_id),
            }
        }
    }
    if args.json {
        println!("{}", serde_json::to_string(&result)?);
    } else {
        print(&result);
    }
    Ok(Exit::Done)
}

/// A record's text as it was said, from the server or from the store.
fn unseal(settings: &Resolved, record_id: &str) -> anyhow::Result<String> {
    if let Ok(mut connection) = Connection::open(&settings.socket, DEADLINE) {
        let call = Call::Unseal { record_id: record_id.to_owned() };
        return match connection.call(&call, Duration::from_secs(5))? {
            Answer::Text(text) => Ok(text),
            Answer::Refused(why) => anyhow::bail!("{why}"),
            other => anyhow::bail!("the server answered something else: {other:?}"),
        };
    }
    memory::runtime()?.block_on(async {
        let tools = memory::open(settings, Duration::from_secs(5)).await?;
        let found = tools.engine.record(&Principal::Owner, &RecordId::new(record_id)).await?;
        let record = found.ok_or_else(|| anyhow::anyhow!("there is no record {record_id}"))?;
        tools
            .engine
            .unseal(&record)
            .ok_or_else(|| anyhow::anyhow!("the seal of {record_id} does not open with this key"))
    })
}

fn print(result: &RecallResult) {
    for Hit { record_id, text, role, session_id, project, ts, reason, worktree, .. } in &result.hits
    {
        let tree = worktree.as_ref().map_or(String::new(), |tree| format!(" (in {tree})"));
        println!("{ts}  {role}  {project}{tree}  session {session_id}");
        println!("  [{record_id}] {reason}");
        for line in text.trim_end().lines() {
            println!("  | {line}");
        }
        println!();
    }
    let omitted = match result.omitted {
        0 => String::new(),
        omitted => format!(", {omitted} more not shown (--limit, --budget-tokens)"),
    };
    println!("{} hits{omitted}", result.hits.len());
    if result.partial {
        println!("some captured turns are not searchable yet; is `hob serve` running?");
    }
}
