//! `hob setup`: from a fresh installation to an agent that remembers, and back.

use clap::Args as ClapArgs;

use super::plan::Setup;
use super::step::{StepState, print_steps, report};
use super::undo::Undo;
use crate::commands::confirm::{OwnersAct, refuse_agents};
use crate::commands::{Context, Exit};
use crate::printer::outln;
use crate::setup_record::SetupRecord;
use crate::socket::client;

/// Set up everything: add hooks and MCP to each coding agent found, import past sessions, and install the service
#[derive(ClapArgs)]
#[command(after_help = "\
Shows what it will do and asks first. You can run it again at any time: it does only what is missing. --undo takes away \
the hooks, the MCP entries and the service that `hob setup` added for this home folder; your memory stays in the home folder \
until you delete it.")]
pub struct Args {
    /// Skip the confirmation prompt
    #[arg(long)]
    yes: bool,
    /// Show what would be done, and do nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Remove the hooks, the MCP entries and the service
    #[arg(long)]
    undo: bool,
    /// Print {"steps":[…],"recall":…,"console":…}
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    refuse_agents(context, "hob setup")?;
    let setup = Setup::new(context)?;
    if args.undo {
        return undo(context, &setup, args);
    }
    let plan = setup.plan()?;
    let is_needed = plan.iter().any(|step| step.state == StepState::Planned);
    if args.dry_run || !is_needed {
        return report(&plan, None, None, args.json);
    }
    if !args.json {
        print_steps(&plan);
    }
    let act = OwnersAct { command: "hob setup", question: "Do this?", yes: args.yes };
    if !act.is_confirmed(context)? {
        return Ok(Exit::Failed);
    }
    let steps = setup.apply(plan)?;
    let recall = setup.example();
    let console = client::hello(&context.settings.socket).ok().and_then(|hello| hello.http);
    report(&steps, recall.as_ref(), console.as_deref(), args.json)
}

fn undo(context: &Context, setup: &Setup<'_>, args: &Args) -> anyhow::Result<Exit> {
    let home = &context.settings.home;
    let mut record = SetupRecord::load(home)?;
    let undo = Undo { folders: &setup.folders, service: &setup.service };
    let plan = undo.plan(&record);
    let is_needed = plan.iter().any(|planned| planned.step.state == StepState::Planned);
    if plan.is_empty() && !args.json {
        outln!("there is nothing to undo: `hob setup` has changed nothing for this home");
    }
    if args.dry_run {
        let steps: Vec<_> = plan.into_iter().map(|planned| planned.step).collect();
        return report(&steps, None, None, args.json);
    }
    if is_needed && !args.json {
        print_steps(plan.iter().map(|planned| &planned.step));
    }
    let question = "Take this back?";
    let act = OwnersAct { command: "hob setup --undo", question, yes: args.yes };
    if is_needed && !act.is_confirmed(context)? {
        return Ok(Exit::Failed);
    }
    let steps = undo.apply(plan, &mut record);
    record.save(home)?;
    let exit = report(&steps, None, None, args.json)?;
    if is_needed && !args.json {
        let root = home.root().display();
        outln!(
            "\nyour memory and your sessions are still in {root}; delete that folder if you want them gone"
        );
    }
    Ok(exit)
}
