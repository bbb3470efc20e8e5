//! The list of settings. The reference in `docs/settings.md` is made from it.

use hob_store::StoreUrl;
use toml::Value;

/// One setting.
pub struct Setting {
    /// `section.key`, or a key at the top level.
    pub key: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    pub help: &'static str,
    /// A variable of an earlier program, read when ours is unset.
    pub earlier: Option<&'static str>,
}

/// What a value may be.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Bool,
    /// A whole number of at least this.
    Count {
        least: i64,
    },
    Text,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// A number that is not negative.
    Amount,
    /// Absolute paths.
    Folders,
    /// Names of hosts.
    Names,
    /// The address of a database, or nothing. It may hold a password, so errors don't repeat it.
    Store,
}

pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "http",
        kind: Kind::Bool,
        default: "true",
        help: "Whether HTTP is served beside the socket (`--no-http` turns it off).",
        earlier: None,
    },
    Setting {
        key: "listen",
        kind: Kind::Text,
        default: "127.0.0.1:7717",
        help: "Where HTTP is served; port 0 takes a free one.",
        earlier: None,
    },
    Setting {
        key: "hosts",
        kind: Kind::Names,
        default: "",
        help: "Names beside `localhost` under which the console and `/admin` may be asked for (in a variable, separated by commas).",
        earlier: None,
    },
    Setting {
        key: "console.session_secs",
        kind: Kind::Count { least: 1 },
        default: "43200",
        help: "How long one stays signed in to the console.",
        earlier: None,
    },
    Setting {
        key: "idle_shutdown_secs",
        kind: Kind::Count { least: 0 },
        default: "0",
        help: "Stop by itself after so long without a connection and without work; 0 is never.",
        earlier: Some("IAI_DAEMON_IDLE_SHUTDOWN_SECS"),
    },
    Setting {
        key: "shutdown_grace_secs",
        kind: Kind::Count { least: 0 },
        default: "10",
        help: "How long running work may go on once hob was told to stop.",
        earlier: None,
    },
    Setting {
        key: "max_body_bytes",
        kind: Kind::Count { least: 1024 },
        default: "8388608",
        help: "The largest request body; a larger one is 413.",
        earlier: None,
    },
    Setting {
        key: "max_file_bytes",
        kind: Kind::Count { least: 1 },
        default: "67108864",
        help: "The largest file that may be uploaded; a larger one is 413.",
        earlier: None,
    },
    Setting {
        key: "log",
        kind: Kind::Text,
        default: "info",
        help: "What goes into the log: a level, or a list of `target=level`.",
        earlier: None,
    },
    Setting {
        key: "store.url",
        kind: Kind::Store,
        default: "",
        help: "Where apps, sessions, their events and the memory are kept: `postgres://USER:PASSWORD@HOST/DATABASE`; empty is `hob.db` and `memory.db` in the home.",
        earlier: None,
    },
    Setting {
        key: "store.encrypt",
        kind: Kind::Bool,
        default: "true",
        help: "Whether what is remembered is encrypted in PostgreSQL with the home's `key`; it stands for as long as the memory exists. In the home it always is.",
        earlier: None,
    },
    Setting {
        key: "cluster.lease_secs",
        kind: Kind::Count { least: 2 },
        default: "10",
        help: "With `store.url`: a node that the database has not heard of for so long is dead, and others take its sessions.",
        earlier: None,
    },
    Setting {
        key: "cluster.max_live",
        kind: Kind::Count { least: 0 },
        default: "0",
        help: "With `store.url`: how many sessions may be open on all nodes together; beyond it 503; 0 is no limit but that of each node.",
        earlier: None,
    },
    Setting {
        key: "sessions.max_live",
        kind: Kind::Count { least: 1 },
        default: "16",
        help: "How many sessions and runs may be live at once; beyond it 503.",
        earlier: None,
    },
    Setting {
        key: "sessions.ttl_secs",
        kind: Kind::Count { least: 1 },
        default: "3600",
        help: "An idle session is closed after so long.",
        earlier: None,
    },
    Setting {
        key: "sessions.hard_ttl_secs",
        kind: Kind::Count { least: 1 },
        default: "604800",
        help: "A closed session is deleted after so long, and so is an uploaded file.",
        earlier: None,
    },
    Setting {
        key: "sessions.sweep_interval_secs",
        kind: Kind::Count { least: 1 },
        default: "30",
        help: "How often idle and closed sessions are looked for.",
        earlier: None,
    },
    Setting {
        key: "sessions.queue",
        kind: Kind::Count { least: 1 },
        default: "8",
        help: "How many turns of a session may wait; beyond it 429.",
        earlier: None,
    },
    Setting {
        key: "sessions.turn_timeout_secs",
        kind: Kind::Count { least: 1 },
        default: "1800",
        help: "How long a turn or a run may take.",
        earlier: None,
    },
    Setting {
        key: "sessions.permission_timeout_secs",
        kind: Kind::Count { least: 1 },
        default: "300",
        help: "How long a caller may take to answer an agent's question; then it is no.",
        earlier: None,
    },
    Setting {
        key: "sessions.start_timeout_secs",
        kind: Kind::Count { least: 1 },
        default: "120",
        help: "How long an agent may take until it can be asked.",
        earlier: None,
    },
    Setting {
        key: "sessions.stall_secs",
        kind: Kind::Count { least: 0 },
        default: "60",
        help: "A turn in which nothing comes for so long is said to stall; 0 is never.",
        earlier: None,
    },
    Setting {
        key: "sessions.roots",
        kind: Kind::Folders,
        default: "",
        help: "Folders a caller's `cwd` may lie in (in a variable, separated by colons).",
        earlier: None,
    },
    Setting {
        key: "sessions.default_agent",
        kind: Kind::Text,
        default: "claude",
        help: "The agent of a run that names none.",
        earlier: None,
    },
    Setting {
        key: "claude.agent",
        kind: Kind::Text,
        default: "claude",
        help: "The agent behind `/v1`; it must have a Claude driver.",
        earlier: None,
    },
    Setting {
        key: "claude.history",
        kind: Kind::Choice(&["native_jsonl", "concat_message"]),
        default: "native_jsonl",
        help: "How a new process behind `/v1` gets a history: as a transcript it resumes, or as words \
               before the first prompt.",
        earlier: None,
    },
    Setting {
        key: "claude.idle_secs",
        kind: Kind::Count { least: 1 },
        default: "900",
        help: "A process behind `/v1` that waits for its conversation to go on is ended after so long.",
        earlier: None,
    },
    Setting {
        key: "memory.model",
        kind: Kind::Text,
        default: "",
        help: "A folder with a sentence model of the BERT family (`model.safetensors`, `tokenizer.json`, \
               `config.json`) that embeds beside the built-in table; empty is the table alone.",
        earlier: None,
    },
    Setting {
        key: "limits.app_sessions",
        kind: Kind::Count { least: 0 },
        default: "0",
        help: "How many sessions an app may have open; beyond it 429; 0 is no limit.",
        earlier: None,
    },
    Setting {
        key: "limits.app_turns_per_minute",
        kind: Kind::Count { least: 0 },
        default: "0",
        help: "How many turns an app may ask for in a minute; 0 is no limit.",
        earlier: None,
    },
    Setting {
        key: "limits.app_tokens_per_day",
        kind: Kind::Count { least: 0 },
        default: "0",
        help: "How many tokens an app's turns may use in a day (UTC); 0 is no limit.",
        earlier: None,
    },
    Setting {
        key: "limits.app_cost_usd_per_day",
        kind: Kind::Amount,
        default: "0",
        help: "What an app's turns may cost in a day (UTC), as far as agents say it; 0 is no limit.",
        earlier: None,
    },
    Setting {
        key: "limits.session_tokens",
        kind: Kind::Count { least: 0 },
        default: "0",
        help: "How many tokens a session may use; 0 is no limit.",
        earlier: None,
    },
    Setting {
        key: "limits.session_cost_usd",
        kind: Kind::Amount,
        default: "0",
        help: "What a session may cost; 0 is no limit.",
        earlier: None,
    },
];

impl Setting {
    /// `HOB_SECTION_KEY`.
    pub fn environment_name(&self) -> String {
        format!("HOB_{}", self.key.replace('.', "_").to_uppercase())
    }

    /// All variables that set it, ours first.
    pub fn environment_names(&self) -> Vec<String> {
        let earlier = self.earlier.map(str::to_owned);
        std::iter::once(self.environment_name()).chain(earlier).collect()
    }
}

impl Kind {
    /// Reads a flag, a variable or a default.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            Kind::Text | Kind::Choice(_) | Kind::Store => Ok(Value::String(text.to_owned())),
            Kind::Amount => match text.trim().parse::<f64>() {
                Ok(number) => Ok(Value::Float(number)),
                Err(_) => Err(format!("{text:?} is not a number")),
            },
            Kind::Folders => {
                let folders = text.split(':').filter(|folder| !folder.is_empty());
                Ok(Value::Array(folders.map(|folder| Value::String(folder.to_owned())).collect()))
            }
            Kind::Names => {
                let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
                Ok(Value::Array(names.map(|name| Value::String(name.to_owned())).collect()))
            }
            Kind::Bool => match text {
                "true" | "1" => Ok(Value::Boolean(true)),
                "false" | "0" => Ok(Value::Boolean(false)),
                _ => Err(format!("{text:?} is neither true nor false")),
            },
            Kind::Count { .. } => match text.trim().parse() {
                Ok(number) => Ok(Value::Integer(number)),
                Err(_) => Err(format!("{text:?} is not a whole number")),
            },
        }
    }

    /// Accepts a value of the right type and range.
    pub fn check(self, value: Value) -> Result<Value, String> {
        match (self, &value) {
            (Kind::Bool, Value::Boolean(_)) | (Kind::Text, Value::String(_)) => Ok(value),
            (Kind::Count { least }, Value::Integer(number)) if *number >= least => Ok(value),
            (Kind::Count { least }, Value::Integer(_)) => {
                Err(format!("it must be at least {least}"))
            }
            (Kind::Amount, Value::Integer(number)) if *number >= 0 => {
                Ok(Value::Float(*number as f64))
            }
            (Kind::Amount, Value::Float(number)) if *number >= 0.0 && number.is_finite() => {
                Ok(value)
            }
            (Kind::Folders, Value::Array(folders)) => {
                let absolute = |folder: &Value| {
                    folder.as_str().is_some_and(|folder| folder.starts_with(['/', '~']))
                };
                match folders.iter().all(absolute) {
                    true => Ok(value),
                    false => Err("it must be a list of absolute paths".to_owned()),
                }
            }
            (Kind::Names, Value::Array(names)) => {
                let plain = |name: &Value| {
                    let allowed =
                        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
                    name.as_str().is_some_and(|name| !name.is_empty() && name.chars().all(allowed))
                };
                match names.iter().all(plain) {
                    true => Ok(value),
                    false => Err("it must be a list of names, without ports".to_owned()),
                }
            }
            (Kind::Names, _) => Err("it must be a list of names".to_owned()),
            (Kind::Choice(known), Value::String(text)) if known.contains(&text.as_str()) => {
                Ok(value)
            }
            (Kind::Store, Value::String(text)) => match text.is_empty() {
                true => Ok(value),
                false => text.parse::<StoreUrl>().map(|_| value.clone()).map_err(|e| e.to_string()),
            },
            (Kind::Choice(known), _) => Err(format!("it must be one of {}", known.join(", "))),
            (Kind::Amount, _) => Err("it must be a number that is not negative".to_owned()),
            (Kind::Folders, _) => Err("it must be a list of paths".to_owned()),
            (Kind::Bool, _) => Err("it must be true or false".to_owned()),
            (Kind::Text | Kind::Store, _) => Err("it must be a text in quotes".to_owned()),
            (Kind::Count { .. }, _) => Err("it must be a whole number".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_valid() {
        for setting in SETTINGS {
            let value = setting.kind.parse(setting.default).and_then(|v| setting.kind.check(v));
            assert!(value.is_ok(), "{}: {value:?}", setting.key);
        }
    }

    /// The reference names every setting with its variable and default, and no other.
    #[test]
    fn the_reference_is_true() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
        let text = std::fs::read_to_string(path).expect("docs/settings.md");
        let found: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
        let expect: Vec<String> = SETTINGS
            .iter()
            .map(|s| {
                let names: Vec<String> =
                    s.environment_names().iter().map(|name| format!("`{name}`")).collect();
                format!("| `{}` | {} | `{}` | {} |", s.key, names.join(", "), s.default, s.help)
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
