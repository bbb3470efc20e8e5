//! What both drivers of Claude Code share: its arguments, its configuration folder, and its records as
//! messages of the Agent Client Protocol.

use std::path::{Path, PathBuf};

use hob_domain::json_size::has_too_many_values;
use hob_domain::session::Permissions;
use hob_domain::{Block, Message, OptionValue, Role, Timestamp};
use hob_files::owned;
use hob_transcript::claude::{SeedContext, seed_transcript};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::claude_settings::{DEFAULT_MODEL, is_mode};
use super::settings::MODEL_OPTION;
use super::start::{StartError, StartOptions};
use crate::claude::input;
use crate::claude::{
    ArgumentFiles, ArgumentPaths, ClaudeTransport, ConfigFolder, CostMeter, FirstCost, LaunchSpec,
    Profile, TranscriptFile,
};
use crate::mcp_servers;

/// The argument with which the program may change to the mode without permissions though it starts in another one.
const MAY_BYPASS: &str = "--allow-dangerously-skip-permissions";

/// A conversation that is ready to be started or resumed.
pub(super) struct PreparedSession {
    /// Claude Code's own session id.
    pub session: String,
    pub transcript: TranscriptFile,
    /// The model that the arguments name.
    pub model: Option<String>,
    /// The arguments, except those that choose the transport.
    pub arguments: Vec<String>,
    /// Whether Hob wrote its transcript.
    rebuilt: bool,
    /// The files that the arguments name, removed with this value.
    argument_files: ArgumentFiles,
    /// Those of them that hold prompts, and the one that takes the cost.
    prompts: ArgumentPaths,
    /// The folder that holds only those files.
    folder: PathBuf,
}

impl Drop for PreparedSession {
    fn drop(&mut self) {
        self.prompts = ArgumentPaths::default();
        self.argument_files.remove();
        let _ = owned::remove_dir(&self.folder);
    }
}

/// Prepares the environment, the sandbox and the arguments. Runs on a blocking thread, because the transcript may have to be
/// searched.
pub(super) async fn prepare(
    mut start: StartOptions,
    transport: ClaudeTransport,
) -> Result<(PreparedSession, StartOptions), StartError> {
    let permit = match start.history.is_empty() {
        true => None,
        false => Some(start.permits.records.acquire().await),
    };
    let preparing = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        prepare_now(&mut start, transport).map(|prepared| (prepared, start))
    });
    preparing.await.map_err(|error| StartError::Internal(error.to_string()))?
}

fn prepare_now(
    start: &mut StartOptions,
    transport: ClaudeTransport,
) -> Result<PreparedSession, StartError> {
    let internal = |error: std::io::Error| StartError::Internal(error.to_string());
    // A configuration folder is never shared by apps: it holds transcripts, and settings that run commands.
    let owner = start.child.owner.clone().unwrap_or_default();
    let parent = start.claude.join("apps").join(owner.app);
    let sandboxed = start.child.confinement.is_some();
    let config =
        ConfigFolder::for_environment(&start.child.env, &parent, sandboxed).map_err(internal)?;
    let mut launch_spec = LaunchSpec {
        command: start.child.args.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        environment: std::mem::take(&mut start.child.env),
        config: config.clone(),
        confinement: start.child.confinement.take(),
        git_hosts: owner.git_hosts,
        settings: Map::new(),
    };
    launch_spec.unattended();
    let mode = launch_spec.permit(start.permissions);
    let session = start.resume.clone().unwrap_or_else(|| Uuid::new_v4().to_string());
    let transcript = TranscriptFile::new(&config, &start.child.cwd, &session);
    // A transcript on this node may predate turns that ran on another node.
    let is_stale = !start.history.is_empty() && !knows(&transcript, &start.history);
    let is_gone = start.resume.is_some() && (is_stale || !transcript.exists());
    let rebuilt = is_gone && !start.history.is_empty();
    if rebuilt {
        rebuild(start, &transcript, &session).map_err(internal)?;
    }
    let mut arguments = match &start.resume {
        // The program itself would report an unknown session only when it exits.
        Some(_) if is_gone && !rebuilt => {
            return Err(StartError::ResumeFailed(
                "the transcript does not exist any more".to_owned(),
            ));
        }
        Some(_) => vec!["--resume".to_owned(), session.clone()],
        None => vec!["--session-id".to_owned(), session.clone()],
    };
    let mut profile = Profile::new(start.child.cwd.clone());
    profile.transport = transport;
    // The caller's later choices win.
    profile.model = match start.choices.options.get(MODEL_OPTION) {
        Some(OptionValue::Choice(model)) => Some(model.clone()).filter(|m| m != DEFAULT_MODEL),
        _ => start.model.clone(),
    };
    profile.append_system_prompt = start.system.clone();
    // The agent may have named the mode that was stored.
    let chosen = start.choices.mode.clone().filter(|chosen| is_mode(chosen, start.permissions));
    if start.permissions == Permissions::Allow && chosen.as_deref().is_some_and(|it| it != mode) {
        profile.extra_args.push(MAY_BYPASS.to_owned());
    }
    profile.permission_mode = Some(chosen.unwrap_or_else(|| mode.to_owned()));
    let folder = start.claude.join("mcp").join(&session);
    let argument_files = ArgumentFiles::new(folder.clone());
    profile.mcp_servers = mcp_servers::for_claude(&start.mcp_servers);
    // The caller runs these tools, so they need no permission.
    let clients = start.mcp_servers.iter().filter(|server| server.is_clients());
    profile.allowed_tools.extend(clients.map(|server| format!("mcp__{}", server.name)));
    let paths = profile.argument_files(&argument_files, None).map_err(internal)?;
    // The files lie in Hob's home, which the sandbox hides.
    paths.all().for_each(|path| launch_spec.show_path(path));
    if let Some(file) = paths.cost() {
        launch_spec.report_cost(file, &start.child.cwd).map_err(internal)?;
    }
    arguments.extend(launch_spec.settings_argument());
    (start.child.env, start.child.confinement) = (launch_spec.environment, launch_spec.confinement);
    arguments.extend(profile.arguments(&paths));
    Ok(PreparedSession {
        model: profile.model,
        session,
        transcript,
        arguments,
        rebuilt,
        argument_files,
        prompts: paths,
        folder,
    })
}

/// How much of a transcript is searched for the last prompt and its answer.
const MAX_SEARCHED_BYTES: u64 = 16 << 20;

/// Returns whether the end of a transcript holds the last prompt and, after it, the end of its answer.
fn knows(transcript: &TranscriptFile, history: &[Message]) -> bool {
    let Ok(text) = transcript.read_end(MAX_SEARCHED_BYTES) else { return false };
    let words = |message: &Message| -> String {
        let texts = message.content.iter().filter_map(|block| match block {
            Block::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("").trim().to_owned()
    };
    let [.., prompt, answer] = history else { return true };
    let (prompt, answer) = (words(prompt), words(answer));
    let (prompt, mut asked) = (input::plain(&prompt).trim().to_owned(), false);
    for line in text.lines().filter(|line| !has_too_many_values(line.as_bytes())) {
        let Ok(record) = serde_json::from_str::<Value>(line) else { continue };
        let Ok(message) = Message::parse(&record["message"]) else { continue };
        let said = words(&message);
        match message.role {
            Role::User => asked |= said == prompt,
            Role::Assistant if asked && !said.is_empty() && answer.ends_with(&said) => return true,
            Role::Assistant => {}
        }
    }
    false
}

/// Writes a transcript from the history, in place of one that lacks it.
fn rebuild(
    start: &StartOptions,
    transcript: &TranscriptFile,
    session: &str,
) -> std::io::Result<()> {
    transcript.create_folder()?;
    transcript.set_aside()?;
    let now = Timestamp::now().to_string();
    let context = SeedContext {
        session,
        cwd: &start.child.cwd.to_string_lossy(),
        now: &now,
        model: start.model.as_deref().unwrap_or("claude"),
    };
    let text = seed_transcript(&start.history, &context, || Uuid::new_v4().to_string());
    transcript.create(&text)
}

impl PreparedSession {
    /// Returns the meter of the process that runs the session.
    pub fn cost_meter(&self, start: &StartOptions) -> CostMeter {
        let first = match start.resume {
            Some(_) => FirstCost::MayContainEarlier,
            None => FirstCost::Own,
        };
        CostMeter::new(self.prompts.cost().map(Path::to_owned), first)
    }

    /// Returns a notice for the caller if the conversation was rebuilt.
    pub fn notice(&self) -> Option<String> {
        let text = "the conversation was rebuilt from the ledger: the agent knows all messages, but not what its tools did";
        self.rebuilt.then(|| text.to_owned())
    }
}

/// Builds a `session/update` message that carries the native record in `_meta`.
pub(super) fn update(session: &str, update: Value, raw: &Value) -> String {
    let mut update = update;
    update["_meta"] = json!({"raw": raw});
    json!({"jsonrpc": "2.0", "method": "session/update",
        "params": {"sessionId": session, "update": update}})
    .to_string()
}

/// Builds the update that names what the conversation has cost so far.
pub(super) fn cost_update(usd: f64) -> Value {
    json!({"sessionUpdate": "usage_update", "cost": {"amount": usd, "currency": "USD"}})
}

/// Builds the update for a block of a message; `None` for blocks without an update.
pub(super) fn block_update(block: &Block) -> Option<Value> {
    let text = |kind: &str, text: &str| json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}});
    Some(match block {
        Block::Text(said) => text("agent_message_chunk", said),
        Block::Thinking { thinking, .. } => text("agent_thought_chunk", thinking),
        Block::ToolUse { id, name, input } => json!({"sessionUpdate": "tool_call",
            "toolCallId": id, "title": name, "kind": tool_kind(name), "status": "pending",
            "rawInput": input}),
        Block::ToolResult { tool_use_id, content, is_error } => {
            let status = if *is_error { "failed" } else { "completed" };
            json!({"sessionUpdate": "tool_call_update", "toolCallId": tool_use_id,
                "status": status, "content": [{"type": "content",
                    "content": {"type": "text", "text": content_text(content)}}]})
        }
        _ => return None,
    })
}

/// The longest title of a permission request, in characters.
const MAX_TITLE_CHARS: usize = 300;

/// Returns what a permission is asked for: the tool with its command, its file or its address, in one line.
pub(super) fn permission_title(tool: &str, input: &Value) -> String {
    let keys = ["command", "file_path", "notebook_path", "path", "pattern", "url", "query"];
    let detail = keys.iter().find_map(|key| input[*key].as_str());
    let Some(detail) = detail.filter(|detail| !detail.trim().is_empty()) else {
        return tool.to_owned();
    };
    let line = detail.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut title = format!("{tool}: {line}");
    if let Some((end, _)) = title.char_indices().nth(MAX_TITLE_CHARS) {
        title.truncate(end);
        title.push('…');
    }
    title
}

/// Adds to a tool call the file that it works in and the changes that it makes there, as the protocol has them.
pub(super) fn add_changes(call: &mut Value, input: &Value) {
    let paths = ["file_path", "notebook_path", "path"];
    let Some(path) = paths.iter().find_map(|key| input[*key].as_str()) else { return };
    call["locations"] = json!([{"path": path}]);
    let change = |before: &Value, after: &Value| {
        let after = after.as_str()?;
        Some(json!({"type": "diff", "path": path, "oldText": before.as_str(), "newText": after}))
    };
    let replacement = |edit: &Value| change(&edit["old_string"], &edit["new_string"]);
    let mut changes: Vec<Value> =
        input["edits"].as_array().into_iter().flatten().filter_map(replacement).collect();
    let written =
        || ["content", "new_source"].iter().find_map(|key| change(&Value::Null, &input[*key]));
    changes.extend(replacement(input).or_else(written));
    if !changes.is_empty() {
        call["content"] = Value::Array(changes);
    }
}

/// Returns the protocol's kind of a Claude Code tool.
pub(super) fn tool_kind(name: &str) -> &'static str {
    match name {
        "Read" | "NotebookRead" => "read",
        "Edit" | "Write" | "MultiEdit" | "NotebookEdit" => "edit",
        "Bash" | "BashOutput" | "KillShell" => "execute",
        "Grep" | "Glob" | "LS" => "search",
        "WebFetch" | "WebSearch" => "fetch",
        "Task" | "Agent" | "TodoWrite" => "think",
        _ => "other",
    }
}

fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts: Vec<&str> =
                blocks.iter().filter_map(|block| block["text"].as_str()).collect();
            texts.join("\n")
        }
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Builds the response that ends a prompt.
pub(super) fn result(prompt: &str, stop_reason: &str, usage: &Value, raw: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": prompt,
        "result": {"stopReason": stop_reason, "usage": usage, "_meta": {"raw": raw}}})
    .to_string()
}

/// Builds the error response that ends a prompt.
pub(super) fn error(prompt: &str, message: &str, raw: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": prompt,
        "error": {"code": -32603, "message": message, "data": {"_meta": {"raw": raw}}}})
    .to_string()
}

/// Translates a stop reason of Claude Code into the protocol's.
pub(super) fn stop_reason(native: &str) -> &str {
    match native {
        "max_tokens" | "refusal" | "cancelled" => native,
        _ => "end_turn",
    }
}

/// Returns a new id for a prompt.
pub(super) fn new_prompt_id() -> String {
    format!("prompt-{}-{}", Timestamp::now().as_millisecond(), Uuid::new_v4().simple())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_titles_say_what_is_asked() {
        let title = |tool: &str, input: Value| permission_title(tool, &input);
        let bash = title("Bash", json!({"command": "rm -rf .terraform &&\n  terraform init"}));
        assert_eq!(bash, "Bash: rm -rf .terraform && terraform init");
        assert_eq!(title("Write", json!({"file_path": "/a/b", "content": "x"})), "Write: /a/b");
        assert_eq!(title("Task", json!({"prompt": "x"})), "Task");
        assert!(title("Bash", json!({"command": "x".repeat(9000)})).chars().count() < 310);
    }

    #[test]
    fn calls_have_the_changes_that_they_make() {
        let with_changes = |input: Value| {
            let mut call = json!({"toolCallId": "t"});
            add_changes(&mut call, &input);
            call
        };
        let diff = |old: Value, new: &str| json!({"type": "diff", "path": "/a", "oldText": old, "newText": new});
        let edit = with_changes(json!({"file_path": "/a", "old_string": "x", "new_string": "y"}));
        assert_eq!(edit["content"], json!([diff(json!("x"), "y")]));
        assert_eq!(edit["locations"], json!([{"path": "/a"}]));
        let written = with_changes(json!({"file_path": "/a", "content": "y"}));
        assert_eq!(written["content"], json!([diff(Value::Null, "y")]));
        let edits =
            json!([{"old_string": "1", "new_string": "2"}, {"old_string": "3", "new_string": "4"}]);
        let several = with_changes(json!({"file_path": "/a", "edits": edits}));
        assert_eq!(several["content"], json!([diff(json!("1"), "2"), diff(json!("3"), "4")]));
        let read = with_changes(json!({"file_path": "/a"}));
        assert!(read["content"].is_null() && read["locations"].is_array(), "{read}");
        assert_eq!(with_changes(json!({"command": "ls"})), json!({"toolCallId": "t"}));
    }

    #[test]
    fn blocks_become_updates() {
        let kind =
            |block: &Block| block_update(block).map(|update| update["sessionUpdate"].clone());
        assert_eq!(kind(&Block::Text("x".into())), Some(json!("agent_message_chunk")));
        let call = Block::ToolUse { id: "t".into(), name: "Bash".into(), input: json!({}) };
        assert_eq!(block_update(&call).unwrap()["kind"], "execute");
        let content = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let result = Block::ToolResult { tool_use_id: "t".into(), content, is_error: true };
        let update = block_update(&result).unwrap();
        assert_eq!((&update["status"], &update["toolCallId"]), (&json!("failed"), &json!("t")));
        assert_eq!(update["content"][0]["content"]["text"], "a\nb");
        let line = super::update("s", block_update(&call).unwrap(), &json!({"type": "assistant"}));
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["params"]["update"]["_meta"]["raw"]["type"], "assistant");
    }
}
