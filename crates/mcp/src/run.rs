//! What each tool does.

use std::path::{Path, PathBuf};

use hob_domain::memory::{Around, Forget, Principal, ProjectLocation, RecordId, Scope, Window};
use hob_domain::{StoreError, Timestamp};
use hob_memory::{
    Backlog, Engine, Note, Question, UpgradeProgress, UpgradeState, backlog, locate_project,
    waiting_turns,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::shapes::{
    BacklogResult, CaptureArguments, CaptureResult, CorrectArguments, CorrectResult,
    ForgetArguments, ForgetResult, RecallArguments, RecallResult, StatsArguments, StatsResult,
    TimelineArguments, TimelineResult,
};

/// The tools of one memory.
#[derive(Clone)]
pub struct Tools {
    pub engine: Engine,
    /// Where deferred captures wait.
    pub deferred: PathBuf,
}

/// Who asks, and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    pub principal: Principal,
    /// The project of the caller's working folder, where it has one.
    pub place: Option<ProjectLocation>,
}

#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The caller can mend it; the text says how.
    #[error("{0}")]
    Wrong(String),
    #[error("there is no tool named {0}")]
    NoSuchTool(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Tools {
    /// Runs a tool and returns its structured result.
    pub async fn call(
        &self,
        here: &Here,
        name: &str,
        arguments: Value,
    ) -> Result<Value, ToolError> {
        match name {
            "memory_recall" => result(&self.recall(here, read(arguments)?).await?),
            "memory_capture" => result(&self.capture(here, read(arguments)?).await?),
            "memory_correct" => result(&self.correct(here, read(arguments)?).await?),
            "memory_forget" => result(&self.forget(here, read(arguments)?).await?),
            "memory_timeline" => result(&self.timeline(here, read(arguments)?).await?),
            "memory_stats" => {
                let StatsArguments {} = read(arguments)?;
                result(&self.stats(here).await?)
            }
            other => Err(ToolError::NoSuchTool(other.to_owned())),
        }
    }

    /// What is captured and not stored yet. Blocking, but short.
    pub fn backlog(&self) -> Backlog {
        backlog(&self.deferred)
    }

    /// About how many turns that are. Blocking: it reads the files.
    pub fn waiting_turns(&self) -> usize {
        waiting_turns(&self.deferred)
    }

    /// Looks for what a cue is about.
    pub async fn recall(
        &self,
        here: &Here,
        arguments: RecallArguments,
    ) -> Result<RecallResult, ToolError> {
        let own = here.place.as_ref().map(|place| place.project.clone());
        let project = match arguments.project.as_deref() {
            // A session is somewhere already.
            None if arguments.session_id.is_some() => None,
            None => own.clone(),
            Some("*") => None,
            Some(name) => Some(self.project(here, name).await?),
        };
        if arguments.budget_tokens == 0 {
            return Err(ToolError::Wrong("budget_tokens: it must be at least 1".to_owned()));
        }
        let question = Question {
            cue: arguments.cue,
            budget_tokens: arguments.budget_tokens,
            limit: limit(arguments.limit)?,
            scope: Scope {
                project,
                session: arguments.session_id,
                since: time("since", arguments.since.as_deref(), Edge::Start)?,
                until: time("until", arguments.until.as_deref(), Edge::End)?,
            },
            first: own,
        };
        let recall = self.engine.recall(&here.principal, &question).await?;
        let waiting = here.principal == Principal::Owner && backlog(&self.deferred).files > 0;
        Ok(RecallResult {
            hits: recall.hits.into_iter().map(Into::into).collect(),
            budget_used: recall.budget_used,
            omitted: recall.omitted,
            partial: waiting,
        })
    }

    async fn capture(
        &self,
        here: &Here,
        arguments: CaptureArguments,
    ) -> Result<CaptureResult, ToolError> {
        if arguments.text.trim().is_empty() {
            return Err(ToolError::Wrong("text is empty".to_owned()));
        }
        let place = match (arguments.project.as_deref(), &here.place) {
            (Some("*"), _) => return Err(ToolError::Wrong("project: name one project".to_owned())),
            (Some(name), _) => {
                let project = self.project(here, name).await?;
                ProjectLocation { worktree: project.clone(), project }
            }
            (None, Some(place)) => place.clone(),
            (None, None) => ProjectLocation { project: "/".to_owned(), worktree: "/".to_owned() },
        };
        let note = Note {
            text: arguments.text,
            cue: arguments.cue,
            role: arguments.role,
            tier: arguments.tier,
            place,
        };
        let (id, duplicate) = self.engine.note(&here.principal, note, Timestamp::now()).await?;
        Ok(CaptureResult { record_id: id.to_string(), duplicate })
    }

    async fn correct(
        &self,
        here: &Here,
        arguments: CorrectArguments,
    ) -> Result<CorrectResult, ToolError> {
        if arguments.text.trim().is_empty() {
            return Err(ToolError::Wrong("text is empty".to_owned()));
        }
        let old = RecordId::new(arguments.record_id);
        let new =
            self.engine.correct(&here.principal, &old, &arguments.text, Timestamp::now()).await?;
        match new {
            Some(id) => {
                Ok(CorrectResult { record_id: id.to_string(), superseded: old.to_string() })
            }
            None => Err(ToolError::Wrong(format!("there is no record {old}"))),
        }
    }

    /// Removes a record or a session for good.
    async fn forget(
        &self,
        here: &Here,
        arguments: ForgetArguments,
    ) -> Result<ForgetResult, ToolError> {
        let what = match (arguments.record_id, arguments.session_id) {
            (Some(id), None) => Forget::Record(RecordId::new(id)),
            (None, Some(session)) => Forget::Session(session),
            _ => {
                let both = "give either record_id or session_id".to_owned();
                return Err(ToolError::Wrong(both));
            }
        };
        let count = self.engine.forget(&here.principal, &what, Timestamp::now()).await?;
        Ok(ForgetResult { count })
    }

    async fn timeline(
        &self,
        here: &Here,
        arguments: TimelineArguments,
    ) -> Result<TimelineResult, ToolError> {
        let own = here.place.as_ref().map(|place| place.project.clone());
        let project = match (arguments.project.as_deref(), &arguments.session_id) {
            (Some("*"), _) | (None, Some(_)) => None,
            (Some(name), _) => Some(self.project(here, name).await?),
            (None, None) => own,
        };
        let around = match arguments.around.as_deref() {
            None => None,
            Some(text) => match time("around", Some(text), Edge::Start) {
                Ok(at) => at.map(Around::Time),
                Err(_) => {
                    let id = RecordId::new(text);
                    let known = self.engine.record(&here.principal, &id).await?;
                    if known.is_none() {
                        let wrong = format!("around: {text} is neither a record nor a time");
                        return Err(ToolError::Wrong(wrong));
                    }
                    Some(Around::Record(id))
                }
            },
        };
        let window = Window {
            scope: Scope { project, session: arguments.session_id, ..Scope::default() },
            around,
            limit: limit(arguments.limit)?,
        };
        let turns = self.engine.timeline(&here.principal, &window).await?;
        Ok(TimelineResult { turns: turns.into_iter().map(Into::into).collect() })
    }

    async fn stats(&self, here: &Here) -> Result<StatsResult, ToolError> {
        let counts = self.engine.counts(&here.principal).await?;
        let waiting = match here.principal {
            Principal::Owner => backlog(&self.deferred),
            Principal::App(_) => hob_memory::Backlog::default(),
        };
        // The model is the owner's; what it has embedded is of all.
        let progress = match here.principal {
            Principal::Owner => self.engine.upgrade_progress().await?,
            Principal::App(_) => None,
        };
        let mut wrong = Vec::new();
        if waiting.failed > 0 {
            let failed = waiting.failed;
            wrong.push(format!("{failed} deferred captures were set aside; see `hob doctor`"));
        }
        if let Some(UpgradeProgress { state: UpgradeState::Failed(why), .. }) = &progress {
            wrong.push(format!("memory.model can't be used: {why}; the built-in table is used"));
        }
        let health = if wrong.is_empty() { "ok".to_owned() } else { wrong.join("; ") };
        Ok(StatsResult {
            turns: counts.turns,
            sessions: counts.sessions,
            projects: counts.projects,
            sealed: counts.sealed,
            superseded: counts.superseded,
            forgotten: counts.forgotten,
            last_ts: counts.last_ts.map(|ts| ts.to_string()),
            backlog: BacklogResult {
                files: waiting.files,
                bytes: waiting.bytes,
                failed: waiting.failed,
            },
            model: progress.map(Into::into),
            health,
        })
    }

    /// The project a caller names: by a folder in it, or by its last name where that is known.
    async fn project(&self, here: &Here, name: &str) -> Result<String, ToolError> {
        // What an app names is a name: nothing of the file system is its to learn.
        if matches!(here.principal, Principal::App(_)) && Path::new(name).is_absolute() {
            return Ok(name.to_owned());
        }
        if Path::new(name).is_absolute() {
            // What is stored is stored under the resolved name, and shown so.
            let known = self.engine.projects_named(&here.principal, name).await?;
            return Ok(match known.as_slice() {
                [project] if project == name => project.clone(),
                _ => locate_project(Path::new(name)).project,
            });
        }
        let mut known = self.engine.projects_named(&here.principal, name).await?;
        match known.len() {
            1 => Ok(known.remove(0)),
            0 => Err(ToolError::Wrong(format!(
                "project: nothing is remembered of a project named {name:?}; give its folder, or \
                 \"*\" for all"
            ))),
            _ => Err(ToolError::Wrong(format!(
                "project: {name:?} may be any of {}; give the folder",
                known.join(", ")
            ))),
        }
    }
}

fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    let arguments = if arguments.is_null() { Value::Object(Default::default()) } else { arguments };
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." { String::new() } else { format!("{path}: ") };
        ToolError::Wrong(format!("{place}{}", error.inner()))
    })
}

fn result<T: Serialize>(value: &T) -> Result<Value, ToolError> {
    serde_json::to_value(value)
        .map_err(|error| ToolError::Store(StoreError::Failed(error.to_string())))
}

fn limit(limit: usize) -> Result<usize, ToolError> {
    match limit {
        1..=500 => Ok(limit),
        _ => Err(ToolError::Wrong(format!("limit: {limit} is not between 1 and 500"))),
    }
}

/// Which end of a day a bare date means.
#[derive(Clone, Copy)]
enum Edge {
    Start,
    End,
}

fn time(name: &str, text: Option<&str>, edge: Edge) -> Result<Option<Timestamp>, ToolError> {
    let Some(text) = text else { return Ok(None) };
    let of_day = match edge {
        Edge::Start => "00:00:00Z",
        Edge::End => "23:59:59.999999Z",
    };
    let parsed = text.parse().or_else(|_| format!("{text}T{of_day}").parse());
    parsed.map(Some).map_err(|_| {
        ToolError::Wrong(format!(
            "{name}: {text:?} is neither a date nor a time such as 2026-05-01T00:00:00Z"
        ))
    })
}
