use serde::{Deserialize, Serialize};

/// How a turn came into the memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum TurnSource {
    /// A hook of a coding agent.
    Hook,
    /// `hob capture-transcript`.
    Transcript,
    /// A deferral file.
    Deferral,
    /// `hob import`, from a folder in which only the program that was used and its user record.
    Import,
    /// `hob import` or `memory.follow`, from another folder, such as a repository: agents may have written there.
    Repository,
    /// A tool of the MCP server: a note or a correction of an agent.
    Mcp,
    /// A command or the console: a note or a correction of the owner's.
    Owner,
    /// A program that runs inside of an agent.
    Agent,
    /// A session or a completion of the gateway.
    Session,
    /// A source of another version, as it was stored.
    Other(String),
}

impl TurnSource {
    /// Returns whether an agent wrote the turn, whatever its role says.
    pub fn is_of_agent(&self) -> bool {
        matches!(self, TurnSource::Mcp | TurnSource::Agent)
    }

    /// Returns whether an agent wrote the turn, or may have written it, whatever its role says.
    pub fn may_be_of_agent(&self) -> bool {
        self.is_of_agent() || *self == TurnSource::Repository
    }

    /// Returns whether the turn comes from a past transcript.
    pub fn is_import(&self) -> bool {
        matches!(self, TurnSource::Import | TurnSource::Repository)
    }

    /// Returns the source as it is stored.
    pub fn as_str(&self) -> &str {
        match self {
            TurnSource::Hook => "hook",
            TurnSource::Transcript => "transcript",
            TurnSource::Deferral => "deferral",
            TurnSource::Import => "import",
            TurnSource::Repository => "repository",
            TurnSource::Mcp => "mcp",
            TurnSource::Owner => "owner",
            TurnSource::Agent => "agent",
            TurnSource::Session => "session",
            TurnSource::Other(text) => text,
        }
    }
}

impl From<String> for TurnSource {
    fn from(text: String) -> TurnSource {
        match text.as_str() {
            "hook" => TurnSource::Hook,
            "transcript" => TurnSource::Transcript,
            "deferral" => TurnSource::Deferral,
            "import" => TurnSource::Import,
            "repository" => TurnSource::Repository,
            "mcp" => TurnSource::Mcp,
            "owner" => TurnSource::Owner,
            "agent" => TurnSource::Agent,
            "session" => TurnSource::Session,
            _ => TurnSource::Other(text),
        }
    }
}

impl From<TurnSource> for String {
    fn from(source: TurnSource) -> String {
        match source {
            TurnSource::Other(text) => text,
            source => source.as_str().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_sources_read_back_as_they_were() {
        let known = ["hook", "transcript", "deferral", "import", "repository", "mcp", "session"];
        for text in known.into_iter().chain(["", "odd"]) {
            let source = TurnSource::from(text.to_owned());
            assert_eq!(source.as_str(), text);
            assert_eq!(matches!(source, TurnSource::Other(_)), matches!(text, "" | "odd"));
            assert_eq!(String::from(source), text);
        }
    }
}
