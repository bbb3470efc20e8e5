//! `hob timeline`: the turns of the memory in their order.

use clap::Args as ClapArgs;
use clap_complete::ArgValueCompleter;
use hob_mcp::TimelineTurn;
use serde_json::{Map, json};

use super::candidates;
use super::memory_ids::{self, IdsOf};
use super::notes::{call, insert_project};
use super::{Context, Exit};
use crate::pager::PagerOptions;
use crate::printer::{self, errln};
use crate::time_input::Moment;
use crate::turns_view::Heading;
use crate::view::{Paint, View};

/// List turns in chronological order
#[derive(ClapArgs)]
#[command(after_help = "IDs may be shortened to any unambiguous prefix.")]
pub struct Args {
    /// Folder or name of a project; "*" lists the turns of all projects [default: the project of the current folder]
    #[arg(long)]
    project: Option<String>,
    /// List this app's sessions instead of your own memory; without --project, list all of the app's projects
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(candidates::apps))]
    app: Option<String>,
    /// List only this session
    #[arg(long, value_name = "ID", add = ArgValueCompleter::new(candidates::memory_sessions))]
    session_id: Option<String>,
    /// List the turns around this record or time [default: the latest turns]
    #[arg(long, value_name = "RECORD|TIME", add = ArgValueCompleter::new(candidates::records))]
    around: Option<String>,
    /// Maximum number of turns
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print {"turns":[…]}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pager: PagerOptions,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let mut arguments = Map::new();
    arguments.insert("limit".to_owned(), json!(args.limit));
    let project = args.project.as_deref().or(args.app.as_ref().map(|_| "*"));
    insert_project(&mut arguments, project)?;
    let whose = IdsOf::of(args.app.as_deref());
    if let Some(session) = &args.session_id {
        let session = memory_ids::session_id(&context.settings, whose, session)?;
        arguments.insert("session_id".to_owned(), json!(session));
    }
    if let Some(around) = &args.around {
        let around = match Moment::parse(around) {
            Ok(moment) => moment.as_str().to_owned(),
            Err(_) => memory_ids::record_id(&context.settings, whose, around)?,
        };
        arguments.insert("around".to_owned(), json!(around));
    }
    let app = args.app.as_deref();
    call(context, app, "memory_timeline", arguments, args.json, |answer| {
        let turns: Vec<TimelineTurn> =
            serde_json::from_value(answer["turns"].clone()).unwrap_or_default();
        if turns.is_empty() {
            errln!("no turns; `--project '*'` lists those of all projects");
        }
        let view = View::of_stdout();
        let text: String = turns.iter().map(|turn| turn_text(&view, turn, app)).collect();
        args.pager.print(&context.settings, &text);
    })
}

fn turn_text(view: &View, turn: &TimelineTurn, app: Option<&str>) -> String {
    let heading = Heading {
        ts: &turn.ts,
        role: &turn.role,
        origin: "",
        project: &turn.project,
        worktree: None,
        session_id: &turn.session_id,
        app,
    };
    let id = view.paint(Paint::Faint, &format!("[{}]", view.id(&turn.record_id)));
    let mut text = format!("{}  {id}\n", heading.line(view));
    for line in turn.text.trim_end().lines() {
        text.push_str(&format!("  {}\n", printer::clean(line)));
    }
    text.push('\n');
    text
}
