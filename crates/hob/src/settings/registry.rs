//! The list of settings. The reference in `docs/settings.md` is made from it.

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
        key: "sessions.max_live",
        kind: Kind::Count { least: 1 },
        default: "16",
        help: "How many sessions and runs may be live at once; beyond it 503.",
        earlier: None,
    },
    Setting {
        key: "sessions.turn_timeout_secs",
        kind: Kind::Count { least: 1 },
        default: "1800",
        help: "How long a run may take.",
        earlier: None,
    },
    Setting {
        key: "sessions.default_agent",
        kind: Kind::Text,
        default: "claude",
        help: "The agent of a run that names none.",
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
            Kind::Text => Ok(Value::String(text.to_owned())),
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
            (Kind::Bool, _) => Err("it must be true or false".to_owned()),
            (Kind::Text, _) => Err("it must be a text in quotes".to_owned()),
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
