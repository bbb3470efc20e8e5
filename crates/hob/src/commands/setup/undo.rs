//! What `hob setup --undo` takes back: only what the record of this home names.

use hob_transcript::AgentClient;

use super::step::{Step, StepKind, StepState};
use crate::hooks::{self, ClientFolders};
use crate::mcp_entry::{self, Removal};
use crate::service::Service;
use crate::setup_record::{RecordedEntry, RecordedHooks, SetupRecord};

const NOTHING: &str = "there is nothing to remove";

pub struct Undo<'a> {
    /// The folders of the clients by today's variables.
    pub folders: &'a ClientFolders,
    pub service: &'a Service,
}

/// A step, and what it takes back.
pub struct PlannedUndo {
    pub step: Step,
    what: Recorded,
}

enum Recorded {
    Hooks(RecordedHooks),
    Entry(RecordedEntry),
    Service(Service),
    /// It is only reported.
    Nothing,
}

impl Undo<'_> {
    /// Returns what there is to take back.
    pub fn plan(&self, record: &SetupRecord) -> Vec<PlannedUndo> {
        // In the reverse order of the setup: Gemini CLI has hooks and MCP servers in one file.
        let mut plan: Vec<PlannedUndo> = record.entries.iter().map(plan_entry).collect();
        plan.extend(record.hooks.iter().map(plan_hooks));
        plan.extend(self.service.recorded(record).map(plan_service));
        plan.extend(AgentClient::ALL.into_iter().filter_map(|client| {
            let is_recorded = record.has_hooks(client, self.folders);
            (!is_recorded).then(|| self.unrecorded_hooks(client)).flatten()
        }));
        plan
    }

    /// Takes back what is planned, and drops it from the record.
    pub fn apply(&self, plan: Vec<PlannedUndo>, record: &mut SetupRecord) -> Vec<Step> {
        let steps = plan.into_iter().map(|planned| take_back(planned, record)).collect();
        if record.unit_folder.is_none() {
            record.remove_folders();
        }
        steps
    }

    /// Reports hooks that something else than `hob setup` of this home has added.
    fn unrecorded_hooks(&self, client: AgentClient) -> Option<PlannedUndo> {
        if !hooks::has_hooks(client, self.folders).unwrap_or(false) {
            return None;
        }
        let detail = format!(
            "left in place: these hooks were not added by `hob setup`, or belong to another home folder; to remove them, run `hob hooks uninstall --client {}`",
            client.as_str()
        );
        let step = Step::new(StepKind::Hooks(client), StepState::Skipped, detail);
        let file = Some(self.folders.settings_file(client));
        Some(PlannedUndo { step: Step { file, ..step }, what: Recorded::Nothing })
    }
}

fn plan_hooks(recorded: &RecordedHooks) -> PlannedUndo {
    let RecordedHooks { client, folders } = recorded;
    let (state, detail) = match hooks::has_hooks(*client, folders) {
        Ok(true) => (StepState::Planned, "remove the hooks".to_owned()),
        Ok(false) => (StepState::Unchanged, NOTHING.to_owned()),
        Err(error) => (StepState::Failed, error.to_string()),
    };
    let step = Step::new(StepKind::Hooks(*client), state, detail);
    let file = Some(folders.settings_file(*client));
    PlannedUndo { step: Step { file, ..step }, what: Recorded::Hooks(recorded.clone()) }
}

fn plan_entry(recorded: &RecordedEntry) -> PlannedUndo {
    let (state, detail) = match mcp_entry::removal(recorded) {
        Ok(Removal::Rest(_)) => (StepState::Planned, "remove the MCP server".to_owned()),
        Ok(Removal::Absent) => (StepState::Unchanged, NOTHING.to_owned()),
        Ok(Removal::Changed) => {
            let detail = "you have changed the MCP server since; it stays, remove it yourself";
            (StepState::Skipped, detail.to_owned())
        }
        Err(error) => (StepState::Failed, error.to_string()),
    };
    let step = Step::new(StepKind::McpEntry(recorded.client), state, detail);
    let file = Some(recorded.file.clone());
    PlannedUndo { step: Step { file, ..step }, what: Recorded::Entry(recorded.clone()) }
}

fn plan_service(service: Service) -> PlannedUndo {
    let has_units = !service.own_units().is_empty();
    let (state, detail) = match (has_units, service.state().refusal()) {
        (true, _) => (StepState::Planned, "stop the service and remove its units".to_owned()),
        (false, Some(refusal)) => (StepState::Skipped, refusal),
        (false, None) => (StepState::Unchanged, NOTHING.to_owned()),
    };
    let file = service.files().into_iter().next();
    let step = Step { file, ..Step::new(StepKind::Service, state, detail) };
    PlannedUndo { step, what: Recorded::Service(service) }
}

/// Takes one step back. What could not be taken back stays in the record.
fn take_back(planned: PlannedUndo, record: &mut SetupRecord) -> Step {
    let PlannedUndo { mut step, what } = planned;
    if step.state == StepState::Failed {
        return step;
    }
    let (done, removed) = match &what {
        Recorded::Hooks(hooks) => (
            hooks::uninstall(hooks.client, &hooks.folders)
                .map(|_| record.hooks.retain(|known| known != hooks))
                .map_err(|error| error.to_string()),
            "removed the hooks",
        ),
        Recorded::Entry(entry) => (
            mcp_entry::uninstall(entry, record).map(drop).map_err(|error| error.to_string()),
            "removed the MCP server",
        ),
        Recorded::Service(service) => (
            service.uninstall(record).map(drop).map_err(|error| format!("{error:#}")),
            "stopped the service and removed its units",
        ),
        Recorded::Nothing => return step,
    };
    match done {
        Err(reason) => (step.state, step.detail) = (StepState::Failed, reason),
        Ok(()) if step.state == StepState::Planned => {
            (step.state, step.detail) = (StepState::Done, removed.to_owned());
        }
        Ok(()) => {}
    }
    step
}
