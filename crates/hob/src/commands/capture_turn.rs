//! `hob capture-turn`: the hook for prompts, answers and ends of sessions. It captures the new part of the
//! session's transcript, or the messages that OpenCode's plugin sends, and prints nothing.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args as ClapArgs;
use hob_domain::Timestamp;
use hob_domain::memory::{TurnKey, TurnSource};
use hob_files::owned;
use hob_memory::{
    CaptureBatch, PartialLine, ReadOptions, TranscriptMark, TranscriptUpdate, locate_project,
    opencode_export_update, read_update,
};
use hob_transcript::RecordedClient;
use serde::Deserialize;
use serde_json::Value;

use super::FromPlugin;
use crate::memory::{Delivered, Fallback, TRANSCRIPT_PART_BYTES, deliver, has_time_for_more};
use crate::settings::Resolved;

/// The most that is read of a hook's JSON, in bytes.
const MAX_INPUT_BYTES: u64 = 64 << 20;

/// Capture the new turns of a session (hook for prompts, answers and ends of sessions)
#[derive(ClapArgs)]
#[command(after_help = "\
Reads the hook's JSON from standard input and prints nothing. If no server answers, writes the turns to a file for \
the server to store later. Always exits with code 0, within 2 seconds (setting \
`memory.hook_timeout_secs`).")]
pub struct Args {
    #[command(flatten)]
    from_plugin: FromPlugin,
}

/// The fields of a hook's JSON that Hob uses.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HookInput {
    pub session_id: Option<String>,
    #[serde(alias = "transcriptPath")]
    pub transcript_path: Option<PathBuf>,
    pub cwd: Option<PathBuf>,
    pub hook_event_name: Option<String>,
    pub last_assistant_message: Option<String>,
    /// Claude Code's id of the prompt, which its transcript has, too.
    pub prompt_id: Option<String>,
    /// Codex's id of the turn.
    pub turn_id: Option<String>,
    /// New messages of a session of OpenCode, in the form that `opencode export` prints.
    pub opencode: Option<Value>,
}

impl HookInput {
    /// Returns the client that called the hook, if the input tells.
    fn client(&self) -> Option<RecordedClient> {
        let claude = self.prompt_id.is_some() || std::env::var_os("CLAUDECODE").is_some();
        match (claude, &self.turn_id) {
            _ if self.is_of_gemini() => Some(RecordedClient::Gemini),
            (true, _) => Some(RecordedClient::Claude),
            (false, Some(_)) => Some(RecordedClient::Codex),
            (false, None) => None,
        }
    }

    /// Returns whether Gemini CLI called the hook: it names the session in the environment of its hooks, too.
    pub fn is_of_gemini(&self) -> bool {
        let named = std::env::var("GEMINI_SESSION_ID").ok();
        named.is_some() && named == self.session_id
    }

    /// Reads one JSON object from standard input, without waiting for end of file.
    pub fn read() -> Option<HookInput> {
        HookInput::parse(std::io::stdin().lock())
    }

    /// Reads one JSON object, and not what follows it.
    pub fn parse(input: impl Read) -> Option<HookInput> {
        let input = input.take(MAX_INPUT_BYTES);
        let mut values = serde_json::Deserializer::from_reader(input).into_iter::<HookInput>();
        values.next()?.ok()
    }
}

pub fn run(settings: &Arc<Resolved>, args: &Args, deadline: Instant) -> anyhow::Result<()> {
    let Some(input) = HookInput::read() else {
        anyhow::bail!("cannot read the hook's JSON from standard input");
    };
    let event = input.hook_event_name.as_deref().unwrap_or_default();
    if args.from_plugin.leaves_hook_to_settings(event) {
        return Ok(());
    }
    settings.home.prepare_for_capture()?;
    if let Some(export) = &input.opencode {
        let update = opencode_export_update(export, Timestamp::now()).ok_or_else(|| {
            anyhow::anyhow!("the export of OpenCode must contain `info` and `messages`")
        })?;
        // Every message has an id, so that those which come again are recognised.
        return capture(settings, &input, update, deadline).map(drop);
    }
    let session = input.session_id.as_deref();
    let state = input.transcript_path.as_ref().map(|path| state_file(settings, path, session));
    let mut mark: TranscriptMark = state
        .as_ref()
        .and_then(|path| owned::read(path).ok())
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    // After SessionEnd no later hook reads a last line that lacks its line break.
    let partial_line = match input.hook_event_name.as_deref() {
        Some("SessionEnd") => PartialLine::Include,
        _ => PartialLine::Defer,
    };
    let mut is_forgotten;
    loop {
        let began = Instant::now();
        let before = mark.clone();
        let options = ReadOptions { session, partial_line, max_bytes: TRANSCRIPT_PART_BYTES };
        let read = input.transcript_path.as_ref().map(|path| read_update(path, &mut mark, options));
        let mut update = match read {
            Some(Ok(update)) => update,
            // A transcript that does not exist yet has no new turns.
            Some(Err(_)) | None => {
                let session = session.unwrap_or("unknown").to_owned();
                TranscriptUpdate { session, ..TranscriptUpdate::default() }
            }
        };
        if let (false, Some(answer)) = (update.more, &input.last_assistant_message) {
            let prompt = input.prompt_id.as_deref();
            update.turns.extend(mark.lagging_answer(answer, prompt, Timestamp::now()));
        }
        let more = update.more;
        let delivered = capture(settings, &input, update, deadline)?;
        // What a power failure could lose is not durable. The next hook reads it again, and the server recognises it.
        if delivered.is_unsynced {
            return Ok(());
        }
        let stored = delivered.stored;
        // A session that was forgotten takes no turns at all.
        is_forgotten = stored.forgotten > 0 && stored.inserted + stored.duplicates == 0 && !more;
        // The offset advances only now, when the turns are durable. Turns of a forgotten session are
        // read again, because the owner can undo that, but not more of them than a hook has time for.
        if let Some(path) = state.as_ref().filter(|_| mark != before && !is_forgotten) {
            hob_files::write_over(path, &serde_json::to_vec(&mark.without_secrets())?, 0o600)?;
        }
        // The next hook reads what this one has no time for.
        if !more || !has_time_for_more(deadline, began.elapsed()) {
            return Ok(());
        }
    }
}

fn capture(
    settings: &Arc<Resolved>,
    input: &HookInput,
    update: TranscriptUpdate,
    deadline: Instant,
) -> anyhow::Result<Delivered> {
    if update.turns.is_empty() {
        return Ok(Delivered::default());
    }
    let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let folder = input.cwd.clone().or_else(|| update.cwd.as_ref().map(PathBuf::from));
    let folder = folder.unwrap_or_else(here);
    let batch = CaptureBatch {
        session: update.session,
        place: locate_project(&folder),
        client: update
            .client
            .or_else(|| input.client())
            .map_or("unknown", RecordedClient::as_str)
            .to_owned(),
        source: TurnSource::Hook,
        turns: update.turns,
    };
    deliver(settings, &batch, &folder.to_string_lossy(), Fallback::Defer, deadline)
}

/// Returns the file that stores how far this session's transcript was captured.
fn state_file(settings: &Arc<Resolved>, transcript: &Path, session: Option<&str>) -> PathBuf {
    let real = transcript.canonicalize().unwrap_or_else(|_| transcript.to_owned());
    let key = TurnKey::of(&["state", &real.to_string_lossy(), session.unwrap_or_default()]);
    settings.home.capture_state().join(format!("{}.json", &key.to_hex()[..32]))
}
