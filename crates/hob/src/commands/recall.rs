//! `hob recall`: searches the memory from a terminal.

use std::time::Duration;

use clap::Args as ClapArgs;
use hob_domain::memory::{Principal, RecordId};
use hob_mcp::{Hit, RecallResult};
use serde_json::{Map, Value, json};

use super::confirm::OwnersAct;
use super::{Context, Exit};
use crate::memory;
use crate::printer::{self, errln, outln};
use crate::settings::Resolved;
use crate::socket::client::{CALL_TIMEOUT, Connection};
use crate::socket::{Answer, Call};

/// Search the memory for turns (prompts and answers) from past sessions
#[derive(ClapArgs)]
pub struct Args {
    /// What to search for: a question, names, paths, an error message
    #[arg(required = true, value_name = "QUERY")]
    cue: Vec<String>,
    /// Folder or name of a project; "*" searches all projects [default: the project of the current
    /// folder]
    #[arg(long)]
    project: Option<String>,
    /// Search only this session
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,
    /// Earliest date or time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Latest date or time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Maximum number of hits
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    /// Approximate maximum size of all hits together, in tokens
    #[arg(long, value_name = "N", default_value_t = 4000)]
    budget_tokens: usize,
    /// Lowest score of a hit, from 0 to 1; 0 also shows turns that hardly match
    #[arg(long, value_name = "SCORE")]
    min_score: Option<f64>,
    /// Show the features that each hit was ranked by
    #[arg(long)]
    explain: bool,
    /// Show secrets instead of masking them; asks first
    #[arg(long)]
    unseal: bool,
    /// With --unseal, do not ask
    #[arg(long)]
    yes: bool,
    /// Print {"hits":[…],"budget_used":…,"omitted":…,"partial":…}
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let settings = &context.settings;
    let unsealing = OwnersAct {
        command: "hob recall --unseal",
        question: "Show the secrets in the hits?",
        yes: args.yes,
    };
    if args.unseal && !unsealing.is_confirmed(context)? {
        return Ok(Exit::Failed);
    }
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
            // A relative folder is relative to the current one.
            let value = match name {
                "project" if value.starts_with('.') || value.contains('/') => {
                    std::path::absolute(value)?.to_string_lossy().into_owned()
                }
                _ => value.clone(),
            };
            arguments.insert(name.to_owned(), json!(value));
        }
    }
    if args.explain {
        arguments.insert("explain".to_owned(), json!(true));
    }
    if let Some(min_score) = args.min_score {
        arguments.insert("min_score".to_owned(), json!(min_score));
    }
    let value = match memory::call_tool(settings, "memory_recall", Value::Object(arguments))? {
        Ok(value) => value,
        Err(why) => {
            errln!("hob: {why}");
            return Ok(Exit::Failed);
        }
    };
    let mut result: RecallResult = serde_json::from_value(value)?;
    if args.unseal {
        for hit in &mut result.hits {
            match unseal(settings, &hit.record_id) {
                Ok(text) => (hit.text, hit.cut) = (text, false),
                Err(error) => errln!("hob: {}: {error:#}", hit.record_id),
            }
        }
    }
    if args.json {
        printer::out_json(&serde_json::to_value(&result)?);
    } else {
        print(&result);
    }
    Ok(Exit::Done)
}

/// Returns the original text of a record, from the server or from the store.
fn unseal(settings: &Resolved, record_id: &str) -> anyhow::Result<String> {
    if let Ok(mut connection) = Connection::open(&settings.socket, CALL_TIMEOUT) {
        let call = Call::Unseal { record_id: record_id.to_owned() };
        return match connection.call(&call, Duration::from_secs(5))? {
            Answer::Text(text) => Ok(text),
            Answer::Refused(why) => anyhow::bail!("{why}"),
            other => anyhow::bail!("unexpected response from the server: {other:?}"),
        };
    }
    memory::runtime()?.block_on(async {
        let tools = memory::open(settings, Duration::from_secs(5)).await?;
        let found = tools.engine.record(&Principal::Owner, &RecordId::new(record_id)).await?;
        let record = found.ok_or_else(|| anyhow::anyhow!("no record has the ID {record_id}"))?;
        tools.engine.unseal(&record).ok_or_else(|| {
            anyhow::anyhow!("cannot decrypt the secrets of {record_id} with this key")
        })
    })
}

fn print(result: &RecallResult) {
    for hit in &result.hits {
        let Hit {
            record_id,
            text,
            role,
            origin,
            session_id,
            project,
            ts,
            reason,
            features,
            worktree,
            cut,
            ..
        } = hit;
        let tree = worktree.as_ref().map_or(String::new(), |tree| format!(" (in {tree})"));
        let origin = match origin.as_str() {
            "user" | "agent" | "" => String::new(),
            origin => format!(" ({origin})"),
        };
        outln!("{ts}  {role}{origin}  {project}{tree}  session {session_id}");
        outln!("  [{record_id}] {reason}");
        for (name, value) in features {
            outln!("    {name} {value:.3}");
        }
        for line in text.trim_end().lines() {
            outln!("  | {line}");
        }
        if *cut {
            outln!("  (a passage of a longer turn; `hob recall --budget-tokens` shows more of it)");
        }
        outln!();
    }
    let omitted = match result.omitted {
        0 => String::new(),
        omitted => format!(", {omitted} more not shown (--limit, --budget-tokens)"),
    };
    outln!("{} hits{omitted}", result.hits.len());
    if result.partial {
        outln!("some captured turns are not searchable yet; `hob serve` makes them searchable");
    }
}
