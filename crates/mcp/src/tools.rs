//! The tools themselves.

use std::path::{Path, PathBuf};

use hob_domain::memory::{
    Around, Forget, Principal, ProjectLocation, RecordId, Scope, TurnSource, Window,
};
use hob_domain::{StoreError, Timestamp};
use hob_memory::{
    Backlog, Engine, ForgetRequests, ModelProgress, ModelState, Note, RecallQuery, backlog,
    locate_project, waiting_turns,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::time_argument::{DayEdge, time_argument};
use crate::wire::{
    BacklogResult, CaptureArguments, CaptureResult, CorrectArguments, CorrectResult,
    ForgetArguments, ForgetResult, Hit, RecallArguments, RecallResult, StatsArguments, StatsResult,
    TimelineArguments, TimelineResult, limit,
};

/// The tools over one memory.
#[derive(Clone)]
pub struct Tools {
    pub engine: Engine,
    /// The folder of deferred captures.
    pub deferred: PathBuf,
    /// What agents ask the owner to forget.
    pub forget_requests: ForgetRequests,
}

/// The caller of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerContext {
    pub principal: Principal,
    /// The project of the caller's working folder, if it has one.
    pub location: Option<ProjectLocation>,
    /// Who writes the caller's notes and corrections.
    pub note_source: TurnSource,
}

/// The error of a call.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The caller can correct the arguments; the text says how.
    #[error("{0}")]
    InvalidArguments(String),
    #[error("unknown tool {0}")]
    UnknownTool(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Tools {
    /// Runs a tool and returns its structured result.
    pub async fn call(
        &self,
        caller: &CallerContext,
        name: &str,
        arguments: Value,
    ) -> Result<Value, ToolError> {
        match name {
            "memory_recall" => result(&self.recall(caller, read(arguments)?).await?),
            "memory_capture" => result(&self.capture(caller, read(arguments)?).await?),
            "memory_correct" => result(&self.correct(caller, read(arguments)?).await?),
            "memory_forget" => result(&self.forget(caller, read(arguments)?).await?),
            "memory_timeline" => result(&self.timeline(caller, read(arguments)?).await?),
            "memory_stats" => {
                let StatsArguments {} = read(arguments)?;
                result(&self.stats(caller).await?)
            }
            other => Err(ToolError::UnknownTool(other.to_owned())),
        }
    }

    /// Counts the captures that are not stored yet. Blocks for a short time.
    pub fn backlog(&self) -> Backlog {
        backlog(&self.deferred)
    }

    /// Estimates the number of turns that are not stored yet. Blocks: it reads the files.
    pub fn waiting_turns(&self) -> usize {
        waiting_turns(&self.deferred)
    }

    /// Searches the memory.
    pub async fn recall(
        &self,
        caller: &CallerContext,
        arguments: RecallArguments,
    ) -> Result<RecallResult, ToolError> {
        let own = caller.location.as_ref().map(|location| location.project.clone());
        let project = match arguments.project.as_deref() {
            // A session belongs to a project already.
            None if arguments.session_id.is_some() => None,
            None => own.clone(),
            Some("*") => None,
            Some(name) => Some(self.project(caller, name).await?),
        };
        if arguments.budget_tokens == 0 {
            return Err(ToolError::InvalidArguments(
                "budget_tokens: must be at least 1".to_owned(),
            ));
        }
        if arguments.min_score.is_some_and(|score| !(0.0..=1.0).contains(&score)) {
            return Err(ToolError::InvalidArguments("min_score: must be from 0 to 1".to_owned()));
        }
        let query = RecallQuery {
            text: arguments.cue,
            budget_tokens: arguments.budget_tokens,
            limit: limit(arguments.limit).map_err(ToolError::InvalidArguments)?,
            scope: Scope {
                project,
                session: arguments.session_id,
                since: time("since", arguments.since.as_deref(), DayEdge::Start)?,
                until: time("until", arguments.until.as_deref(), DayEdge::End)?,
            },
            preferred_project: own,
            min_score: arguments.min_score,
            explain: arguments.explain,
        };
        let recall = self.engine.recall(&caller.principal, &query).await?;
        let waiting = caller.principal == Principal::Owner && backlog(&self.deferred).files > 0;
        Ok(RecallResult {
            hits: recall.hits.into_iter().map(|hit| Hit::new(hit, &caller.principal)).collect(),
            budget_used: recall.budget_used,
            omitted: recall.omitted,
            partial: waiting,
        })
    }

    async fn capture(
        &self,
        caller: &CallerContext,
        arguments: CaptureArguments,
    ) -> Result<CaptureResult, ToolError> {
        if arguments.text.trim().is_empty() {
            return Err(ToolError::InvalidArguments("text: must not be empty".to_owned()));
        }
        let place = match (arguments.project.as_deref(), &caller.location) {
            (Some("*"), _) => {
                return Err(ToolError::InvalidArguments(
                    "project: must name a single project".to_owned(),
                ));
            }
            (Some(name), _) => {
                let project = self.project(caller, name).await?;
                ProjectLocation { worktree: project.clone(), project }
            }
            (None, Some(location)) => location.clone(),
            (None, None) => ProjectLocation { project: "/".to_owned(), worktree: "/".to_owned() },
        };
        let note = Note {
            text: arguments.text,
            cue: arguments.cue,
            role: arguments.role,
            tier: arguments.tier,
            place,
            source: caller.note_source.clone(),
        };
        let (id, duplicate) = self.engine.note(&caller.principal, note, Timestamp::now()).await?;
        Ok(CaptureResult { record_id: id.to_string(), duplicate })
    }

    async fn correct(
        &self,
        caller: &CallerContext,
        arguments: CorrectArguments,
    ) -> Result<CorrectResult, ToolError> {
        if arguments.text.trim().is_empty() {
            return Err(ToolError::InvalidArguments("text: must not be empty".to_owned()));
        }
        let old = RecordId::new(arguments.record_id);
        let (text, source) = (&arguments.text, caller.note_source.clone());
        let new =
            self.engine.correct(&caller.principal, &old, text, source, Timestamp::now()).await?;
        match new {
            Some(id) => {
                Ok(CorrectResult { record_id: id.to_string(), superseded: old.to_string() })
            }
            None => Err(ToolError::InvalidArguments(format!("record_id: unknown record {old}"))),
        }
    }

    async fn forget(
        &self,
        caller: &CallerContext,
        arguments: ForgetArguments,
    ) -> Result<ForgetResult, ToolError> {
        let named = Forget::named(arguments.record_id.as_deref(), arguments.session_id.as_deref());
        let Some(what) = named else {
            let reason = "specify exactly one of record_id and session_id".to_owned();
            return Err(ToolError::InvalidArguments(reason));
        };
        let now = Timestamp::now();
        if caller.principal == Principal::Owner {
            // Callers of a tool are agents. The owner's own command calls the engine.
            if arguments.undo {
                let reason = "undo: only the owner can restore turns, with `hob forget --undo`";
                return Err(ToolError::InvalidArguments(reason.to_owned()));
            }
            if let Forget::Record(id) = &what
                && self.engine.record(&caller.principal, id).await?.is_none()
            {
                return Ok(ForgetResult { count: 0, request_id: None });
            }
            let project = caller.location.as_ref().map(|location| location.project.clone());
            let (requests, ForgetArguments { record_id, session_id, .. }) =
                (self.forget_requests.clone(), arguments);
            let added = tokio::task::spawn_blocking(move || {
                requests.add(record_id, session_id, project, now)
            });
            let request = added
                .await
                .map_err(|error| StoreError::Failed(error.to_string()))?
                .map_err(|error| StoreError::Failed(error.to_string()))?;
            return Ok(ForgetResult { count: 0, request_id: Some(request.id) });
        }
        let count = match arguments.undo {
            true => self.engine.undo_forget(&caller.principal, &what, now).await?,
            false => self.engine.forget(&caller.principal, &what, now).await?,
        };
        Ok(ForgetResult { count, request_id: None })
    }

    async fn timeline(
        &self,
        caller: &CallerContext,
        arguments: TimelineArguments,
    ) -> Result<TimelineResult, ToolError> {
        let own = caller.location.as_ref().map(|location| location.project.clone());
        let mut project = match (arguments.project.as_deref(), &arguments.session_id) {
            (Some("*"), _) | (None, Some(_)) => None,
            (Some(name), _) => Some(self.project(caller, name).await?),
            (None, None) => own,
        };
        let around = match arguments.around.as_deref() {
            None => None,
            Some(text) => match time("around", Some(text), DayEdge::Start) {
                Ok(at) => at.map(Around::Time),
                Err(_) => {
                    let id = RecordId::new(text);
                    let wrong =
                        |reason| ToolError::InvalidArguments(format!("around: {text} {reason}"));
                    let record = self.engine.record(&caller.principal, &id).await?;
                    let record = record.ok_or_else(|| wrong("is neither a record nor a time"))?;
                    if arguments.session_id.as_ref().is_some_and(|id| *id != record.session) {
                        return Err(wrong("is not in this session"));
                    }
                    // The turns around a hit of another project are of interest, not those here.
                    if arguments.project.is_none() && arguments.session_id.is_none() {
                        project = Some(record.place.project);
                    } else if project.as_ref().is_some_and(|name| *name != record.place.project) {
                        return Err(wrong("is not in this project"));
                    }
                    Some(Around::Record(id))
                }
            },
        };
        let window = Window {
            scope: Scope { project, session: arguments.session_id, ..Scope::default() },
            around,
            limit: limit(arguments.limit).map_err(ToolError::InvalidArguments)?,
        };
        let turns = self.engine.timeline(&caller.principal, &window).await?;
        Ok(TimelineResult { turns: turns.into_iter().map(Into::into).collect() })
    }

    async fn stats(&self, caller: &CallerContext) -> Result<StatsResult, ToolError> {
        let counts = self.engine.counts(&caller.principal).await?;
        let waiting = match caller.principal {
            Principal::Owner => backlog(&self.deferred),
            Principal::App(_) => Backlog::default(),
        };
        // The model is the owner's setting, and its progress counts the turns of all principals.
        let progress = match caller.principal {
            Principal::Owner => self.engine.model_progress().await?,
            Principal::App(_) => None,
        };
        let mut problems = Vec::new();
        if waiting.failed > 0 {
            let failed = waiting.failed;
            problems.push(format!("{failed} files of captured turns could not be stored in the memory; see `hob doctor`"));
        }
        if let Some(ModelProgress { state: ModelState::Failed(reason), .. }) = &progress {
            problems.push(format!(
                "cannot load memory.model: {reason}; recall uses the built-in table"
            ));
        }
        let health = if problems.is_empty() { "ok".to_owned() } else { problems.join("; ") };
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

    /// Resolves the project that a caller names by a folder in it, or by the last part of its path.
    async fn project(&self, caller: &CallerContext, name: &str) -> Result<String, ToolError> {
        // An app must not learn anything about the file system, so its paths are only names.
        if matches!(caller.principal, Principal::App(_)) && Path::new(name).is_absolute() {
            return Ok(name.to_owned());
        }
        if Path::new(name).is_absolute() {
            // Projects are stored and shown under their resolved path.
            let known = self.engine.projects_named(&caller.principal, name).await?;
            return Ok(match known.as_slice() {
                [project] if project == name => project.clone(),
                _ => project_of(name.to_owned()).await,
            });
        }
        let mut known = self.engine.projects_named(&caller.principal, name).await?;
        match known.len() {
            1 => Ok(known.remove(0)),
            0 => Err(ToolError::InvalidArguments(format!(
                "project: unknown project {name:?}; give its folder, or \"*\" for all projects"
            ))),
            _ => Err(ToolError::InvalidArguments(format!(
                "project: {name:?} is ambiguous: {}; give the folder",
                known.join(", ")
            ))),
        }
    }
}

/// Returns the project of a folder. Runs on a blocking thread, because the folder may lie on a disk that hangs.
async fn project_of(folder: String) -> String {
    let look_up = move || locate_project(Path::new(&folder)).project;
    tokio::task::spawn_blocking(look_up).await.unwrap_or_default()
}

fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    let arguments = if arguments.is_null() { Value::Object(Default::default()) } else { arguments };
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { String::new() } else { format!("{path}: ") };
        ToolError::InvalidArguments(format!("{field}{}", error.inner()))
    })
}

fn result<T: Serialize>(value: &T) -> Result<Value, ToolError> {
    serde_json::to_value(value)
        .map_err(|error| ToolError::Store(StoreError::Failed(error.to_string())))
}

fn time(name: &str, text: Option<&str>, edge: DayEdge) -> Result<Option<Timestamp>, ToolError> {
    time_argument(name, text, edge).map_err(ToolError::InvalidArguments)
}
