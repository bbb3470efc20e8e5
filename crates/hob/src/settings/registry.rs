//! The table of settings. It makes the registry, from which `docs/settings.md` is checked, and
//! [`Values`], the struct that the rest of the program reads.

use std::path::PathBuf;
use std::time::Duration;

use hob_agents::claude::HistoryMode;
use hob_store::StoreUrl;

use super::setting::Setting;
use super::source::SettingsError;
use super::value::{AgentReference, FollowedRecords, HostNames, ValueReader};

/// Makes [`SETTINGS`] and [`Values`] from one table, so that a setting cannot be in one and not in
/// the other. The type of a field decides which values are valid; see [`super::value`].
macro_rules! settings {
    ($($field:ident: $type:ty {
        key: $key:literal, default: $default:literal, $(min: $min:literal,)? $(earlier: $earlier:literal,)?
        help: $help:literal $(,)?
    })*) => {
        /// All settings, in the order of the reference.
        pub const SETTINGS: &[Setting] = &[$(
            settings!(@setting $key, $default, [$($min)?], [$($earlier)?], $help)
        ),*];

        /// The value of every setting.
        #[derive(Debug)]
        pub struct Values {
            $(#[doc = $help] pub $field: $type,)*
        }

        impl Values {
            /// Reads every setting, in the order of the table.
            pub fn read(reader: &mut ValueReader<'_>) -> Result<Values, SettingsError> {
                Ok(Values {$(
                    $field: reader.read(
                        settings!(@setting $key, $default, [$($min)?], [$($earlier)?], $help)
                    )?,
                )*})
            }
        }
    };
    (@setting $key:literal, $default:literal, [$($min:literal)?], [$($earlier:literal)?], $help:literal) => {
        Setting {
            key: $key,
            default: $default,
            min: [$($min,)? 0][0],
            help: $help,
            earlier: &[$($earlier)?],
        }
    };
}

settings! {
    http: bool {
        key: "http", default: "true",
        help: "Serve HTTP in addition to the socket. `--no-http` turns it off.",
    }
    listen: String {
        key: "listen", default: "127.0.0.1:7717",
        help: "Address of the HTTP server. Port 0 picks a free port.",
    }
    hosts: HostNames {
        key: "hosts", default: "",
        help: "Host names, in addition to `localhost`, under which browsers may open the console and `/admin`. In the environment variable, commas separate the names.",
    }
    console_session: Duration {
        key: "console.session_secs", default: "43200", min: 1,
        help: "Lifetime of a console sign-in, in seconds.",
    }
    idle_shutdown: Duration {
        key: "idle_shutdown_secs", default: "0", min: 0, earlier: "IAI_DAEMON_IDLE_SHUTDOWN_SECS",
        help: "Stop the server after this many seconds with no connections and no work. 0 means never.",
    }
    watchdog: Duration {
        key: "watchdog_secs", default: "60", min: 0,
        help: "Stop the server if it hangs for this many seconds, so that the service manager starts it again. An idle server does not count as hanging. 0 turns this off.",
    }
    shutdown_grace: Duration {
        key: "shutdown_grace_secs", default: "10", min: 0,
        help: "After a stop signal, running turns have this many seconds to finish. Then the server ends them.",
    }
    max_body_bytes: usize {
        key: "max_body_bytes", default: "8388608", min: 1024,
        help: "Maximum size of a request body, in bytes. Larger requests are rejected with HTTP 413.",
    }
    max_file_bytes: u64 {
        key: "max_file_bytes", default: "67108864", min: 1,
        help: "Maximum size of an uploaded file, in bytes. Larger files are rejected with HTTP 413.",
    }
    log: String {
        key: "log", default: "info",
        help: "Level of the log file: `error`, `warn`, `info`, `debug` or `trace`; or a level followed by comma-separated `target=level` exceptions, for example `warn,hob_memory=debug`.",
    }
    pager: String {
        key: "pager", default: "",
        help: "Program that shows output of `hob recall`, `timeline`, `logs` and `sessions list` that is longer than the terminal. If empty, Hob uses `$PAGER`, or `less -FRX` if that is not set. `cat` or `--no-pager` turns paging off.",
    }
    store_url: Option<StoreUrl> {
        key: "store.url", default: "",
        help: "PostgreSQL database for apps, sessions, events and the memory: `postgres://USER:PASSWORD@HOST/DATABASE`. If empty, Hob uses the SQLite files `hob.db` and `memory.db` in `$HOB_HOME`.",
    }
    store_require_tls: bool {
        key: "store.require_tls", default: "true",
        help: "If the database is on another machine, refuse to start unless `store.url` requires TLS (`sslmode=require` or stricter). Set it to false only for a database on a private network.",
    }
    store_encrypt: bool {
        key: "store.encrypt", default: "true",
        help: "Encrypt what was said and remembered (prompts, answers, events, uploads, the memory) in PostgreSQL with the key in `$HOB_HOME/key`. You cannot change this setting once the memory has been created. The SQLite files are always encrypted.",
    }
    backup_folder: Option<PathBuf> {
        key: "backup.folder", default: "",
        help: "Folder (absolute path) for automatic backups. Use a folder that holds only backups: Hob hides the whole folder from the agents that it runs for apps, so they cannot read anything else that you keep there. If not set, Hob makes no automatic backups. Works with the SQLite files only, not with `store.url`.",
    }
    backup_interval: Duration {
        key: "backup.every_secs", default: "86400", min: 1,
        help: "How often, in seconds, Hob makes an automatic backup.",
    }
    backup_keep: usize {
        key: "backup.keep", default: "7", min: 1,
        help: "How many automatic backups to keep. Hob deletes older backups of this home folder, and leaves those of other home folders alone.",
    }
    backup_with_key: bool {
        key: "backup.with_key", default: "true",
        help: "Include the key in automatic backups. Anyone who has such a file can then read all of it, unless a passphrase (HOB_PASSPHRASE) protects the key. If you set this to `false`, you must keep your own copy of `$HOB_HOME/key`: without the key, a backup only tells when it was made and how many rows it has.",
    }
    cluster_lease: Duration {
        key: "cluster.lease_secs", default: "10", min: 2,
        help: "Only if `store.url` is set: a node (one Hob server on the shared database) counts as dead after this many seconds without a heartbeat. The other nodes then take over its sessions.",
    }
    cluster_max_live: usize {
        key: "cluster.max_live", default: "0", min: 0,
        help: "Only if `store.url` is set: maximum number of open sessions across all nodes. Additional sessions and runs are rejected with HTTP 503. 0 means that only `sessions.max_live` of each node applies.",
    }
    max_live: usize {
        key: "sessions.max_live", default: "16", min: 1,
        help: "Maximum combined number of open sessions, runs (one-shot requests) and `/v1` processes (agents kept running for the `/v1` API) on this server. At the limit, Hob stops an idle `/v1` process to make room; if there is none, it rejects new sessions and runs with HTTP 503.",
    }
    session_ttl: Duration {
        key: "sessions.ttl_secs", default: "3600", min: 1,
        help: "Close a session after this many seconds without a turn.",
    }
    session_hard_ttl: Duration {
        key: "sessions.hard_ttl_secs", default: "604800", min: 1,
        help: "Delete a session this many seconds after it was closed, and a file this many seconds after its upload.",
    }
    sweep_interval: Duration {
        key: "sessions.sweep_interval_secs", default: "30", min: 1,
        help: "How often, in seconds, Hob looks for sessions to close or delete.",
    }
    max_queued_turns: usize {
        key: "sessions.queue", default: "8", min: 1,
        help: "Maximum number of turns that wait in one session. Additional turns are rejected with HTTP 429.",
    }
    turn_timeout: Duration {
        key: "sessions.turn_timeout_secs", default: "1800", min: 1,
        help: "Maximum duration of a turn or a run, in seconds. After that, Hob ends it with the error `timeout` (HTTP 504).",
    }
    permission_timeout: Duration {
        key: "sessions.permission_timeout_secs", default: "300", min: 1,
        help: "How long, in seconds, Hob waits for an answer to an agent's permission request. After that, Hob rejects the request.",
    }
    start_timeout: Duration {
        key: "sessions.start_timeout_secs", default: "120", min: 1,
        help: "Maximum time, in seconds, that an agent may take to start. After that, the turn or run fails.",
    }
    stall_after: Duration {
        key: "sessions.stall_secs", default: "60", min: 0,
        help: "Emit a `stalled` event if the agent prints nothing for this many seconds during a turn. 0 disables the event.",
    }
    roots: Vec<PathBuf> {
        key: "sessions.roots", default: "",
        help: "Folders (absolute paths) that an app's `cwd` must be inside. If empty, apps cannot choose a `cwd`, and each session works in its own folder. Unless a folder is listed under `writable` in the agent's `[agents.NAME]` table, the `cwd` of an app's session cannot be your home folder itself or a folder in it whose name begins with a dot, and the `cwd` of your own sessions cannot be a folder that holds credentials or settings (such as `~/.ssh`). In the environment variable, colons separate the folders.",
    }
    default_agent: AgentReference {
        key: "sessions.default_agent", default: "claude",
        help: "Agent to use if none is specified: for one-shot requests (`POST /run`), for `hob run` and for `hob acp`.",
    }
    claude_agent: AgentReference {
        key: "claude.agent", default: "claude",
        help: "Agent that answers requests to the Anthropic- and OpenAI-compatible API (`/v1`). Its driver must be `claude-tui` or `claude-stream`.",
    }
    claude_history: HistoryMode {
        key: "claude.history", default: "native_jsonl",
        help: "How Hob gives the conversation so far to a newly started `/v1` process: `native_jsonl` resumes it from a transcript file, `concat_message` puts it before the first prompt.",
    }
    claude_idle: Duration {
        key: "claude.idle_secs", default: "900", min: 1,
        help: "Stop a `/v1` process after this many seconds without a request.",
    }
    claude_tool_result: Duration {
        key: "claude.tool_result_timeout_secs", default: "600", min: 1,
        help: "How long, in seconds, Hob waits for a `/v1` client to return the result of a client-side tool call. After that, Hob ends the turn.",
    }
    memory_model: Option<PathBuf> {
        key: "memory.model", default: "",
        help: "Folder with a BERT sentence model (`model.safetensors`, `tokenizer.json`, `config.json`) that recall uses in addition to the built-in embedding table. If empty, recall uses the table alone.",
    }
    memory_follow: FollowedRecords {
        key: "memory.follow", default: "",
        help: "Programs and folders whose records the server imports while they grow, for example `[\"cursor\", \"zed\", \"~/src/shop\"]`. Use this for programs that have no hooks: list `cline`, `copilot`, `cursor`, `goose`, `qwen`, `roo` and `zed` by name. For aider, SpecStory and Entire, list the folder of the repository. In the environment variable, commas separate them.",
    }
    memory_undo: Duration {
        key: "memory.forget_undo_secs", default: "86400", min: 0,
        help: "Forgotten turns are hidden at once and erased after this many seconds. Until then `hob forget --undo` restores them.",
    }
    hook_timeout: Duration {
        key: "memory.hook_timeout_secs", default: "2", min: 1,
        help: "How long, in seconds, the commands that agents call as hooks (`hob capture-turn`, `hob capture-transcript`, `hob session-start`) may take. If the server does not answer in time, they write the turns to a file, which the server stores later. Increase this on a very slow disk, but keep it below 10: the agent waits for its hooks, and ends them after 10 seconds. (At the end of a session, Codex ends them after 3 seconds.)",
    }
    app_sessions: usize {
        key: "limits.app_sessions", default: "0", min: 0,
        help: "Maximum number of open sessions per app. Additional sessions are rejected with HTTP 429. 0 means no limit.",
    }
    app_requests: usize {
        key: "limits.app_requests", default: "1024", min: 1,
        help: "Maximum number of open requests and streams per app. Additional requests are rejected with HTTP 429.",
    }
    app_upload_bytes: u64 {
        key: "limits.app_upload_bytes", default: "4294967296", min: 0,
        help: "Maximum total size of an app's uploaded files, in bytes. A file smaller than 65536 bytes counts as 65536 bytes. Additional uploads are rejected with HTTP 507. 0 means no limit.",
    }
    agent_memory_percent: u64 {
        key: "limits.agent_memory_percent", default: "75", min: 0,
        help: "Maximum share of the machine's memory that an agent in its sandbox may use, together with everything it started, in percent. Hob ends an agent that uses more. 0 means no limit.",
    }
    agent_disk_bytes: u64 {
        key: "limits.agent_disk_bytes", default: "68719476736", min: 0,
        help: "Maximum disk space that an agent in its sandbox may use, in bytes. This includes its temporary files, the configuration folders that Hob keeps for its app (see `private`), and its workspace. A workspace that is one of your own folders does not count. Hob ends an agent that uses more. 0 means no limit.",
    }
    app_turns_per_minute: usize {
        key: "limits.app_turns_per_minute", default: "0", min: 0,
        help: "Maximum number of turns per app per minute. Additional turns are rejected with HTTP 429. 0 means no limit.",
    }
    app_tokens_per_day: u64 {
        key: "limits.app_tokens_per_day", default: "0", min: 0,
        help: "Maximum number of tokens that an app may use per day (UTC), input and output together. After that, its turns are rejected with HTTP 429. 0 means no limit.",
    }
    app_cost_per_day: f64 {
        key: "limits.app_cost_usd_per_day", default: "0",
        help: "Maximum cost of an app per day (UTC), in US dollars, as reported by the agents. After that, its turns are rejected with HTTP 429. 0 means no limit.",
    }
    session_tokens: u64 {
        key: "limits.session_tokens", default: "0", min: 0,
        help: "Maximum number of tokens that a session may use, input and output together. After that, its turns are rejected with HTTP 429. 0 means no limit.",
    }
    session_cost: f64 {
        key: "limits.session_cost_usd", default: "0",
        help: "Maximum cost of a session, in US dollars, as reported by the agents. After that, its turns are rejected with HTTP 429. 0 means no limit.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference names every setting with its variables and default, and no other.
    #[test]
    fn reference_lists_every_setting() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
        let text = std::fs::read_to_string(path).expect("docs/settings.md");
        let found: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
        let expect: Vec<String> = SETTINGS
            .iter()
            .map(|s| {
                let names: Vec<String> =
                    s.environment_names().iter().map(|name| format!("`{name}`")).collect();
                let default = match s.default {
                    "" => "none".to_owned(),
                    default => format!("`{default}`"),
                };
                format!("| `{}` | {} | {default} | {} |", s.key, names.join(", "), s.help)
            })
            .collect();
        assert_eq!(
            found,
            expect,
            "docs/settings.md differs from the registry; it should hold\n{}",
            expect.join("\n")
        );
    }
}
