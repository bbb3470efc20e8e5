use std::path::Path;

use crate::client::RecordedClient;
use crate::memory_file::memory_file_client;

/// How a file of records is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordFile {
    /// Lines of JSON, which may grow.
    Lines,
    /// A document that is read as a whole.
    Document,
    /// A database of this kind.
    Database(RecordDatabase),
    /// The file of one session of an earlier OpenCode, next to the folders of its messages and parts.
    OpencodeSession,
    /// Notes that an agent of this client wrote for later sessions.
    MemoryFile(RecordedClient),
}

/// A database in which a client records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordDatabase {
    /// OpenCode's.
    Opencode,
    /// goose's.
    Goose,
    /// That of the editor Cursor.
    Cursor,
    /// One chat of Cursor's command line.
    CursorChat,
    /// That of the editor Zed.
    Zed,
}

impl RecordFile {
    /// Returns how to read a file that the user names. What it contains decides whether it can be read.
    pub fn of_named(path: &Path) -> RecordFile {
        let is_document = path.extension().is_some_and(|ending| ending == "json" || ending == "md");
        RecordFile::of_found(path).unwrap_or(if is_document {
            RecordFile::Document
        } else {
            RecordFile::Lines
        })
    }

    /// Returns how to read a file that was found in a folder, or `None` for a file of another kind.
    pub fn of_found(path: &Path) -> Option<RecordFile> {
        let name = path.file_name()?.to_str()?;
        let mut parents = path
            .ancestors()
            .skip(1)
            .map(|parent| parent.file_name().and_then(|name| name.to_str()).unwrap_or_default());
        let mut next = || parents.next().unwrap_or_default();
        let (parent, above, top) = (next(), next(), next());
        let is_session_of_opencode = above == "session" && top == "storage";
        let database = |kind| Some(RecordFile::Database(kind));
        match name.rsplit_once('.')?.1 {
            "jsonl" => Some(RecordFile::Lines),
            "json" if name == "api_conversation_history.json" => Some(RecordFile::Document),
            "json" if parent == "chats" && name.starts_with("session-") => {
                Some(RecordFile::Document)
            }
            "json" if is_session_of_opencode => Some(RecordFile::OpencodeSession),
            // `sessions/ID/ID.messages.json` of Cline.
            "json" if above == "sessions" && name.ends_with(".messages.json") => {
                Some(RecordFile::Document)
            }
            "md" if name == ".aider.chat.history.md" => Some(RecordFile::Document),
            "md" if parent == "history" && above == ".specstory" => Some(RecordFile::Document),
            "md" => memory_file_client(path).map(RecordFile::MemoryFile),
            "db" if name == "opencode.db" => database(RecordDatabase::Opencode),
            "db" if name == "sessions.db" && parent == "sessions" => {
                database(RecordDatabase::Goose)
            }
            "db" if name == "store.db" && top == "chats" => database(RecordDatabase::CursorChat),
            "db" if name == "threads.db" && parent == "threads" => database(RecordDatabase::Zed),
            "vscdb" if name == "state.vscdb" && parent == "globalStorage" => {
                database(RecordDatabase::Cursor)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_recognised_by_their_names() {
        let check = |path: &str, expect: Option<RecordFile>| {
            assert_eq!(RecordFile::of_found(Path::new(path)), expect, "{path}");
        };
        check("/h/.claude/projects/p/1.jsonl", Some(RecordFile::Lines));
        check("/h/.gemini/tmp/p/chats/session-1.json", Some(RecordFile::Document));
        check("/h/.gemini/tmp/p/logs.json", None);
        let database = |kind| Some(RecordFile::Database(kind));
        check("/h/opencode/opencode.db", database(RecordDatabase::Opencode));
        check("/h/goose/sessions/sessions.db", database(RecordDatabase::Goose));
        check("/h/.cursor/chats/5d41/c0ffee/store.db", database(RecordDatabase::CursorChat));
        check("/h/.cursor/other/store.db", None);
        check("/h/zed/threads/threads.db", database(RecordDatabase::Zed));
        check("/h/zed/db/0-stable/threads.db", None);
        check("/h/User/globalStorage/state.vscdb", database(RecordDatabase::Cursor));
        check("/h/User/workspaceStorage/1/state.vscdb", None);
        check("/h/.cline/data/sessions/1/1.messages.json", Some(RecordFile::Document));
        check("/h/.cline/data/sessions/1/1.json", None);
        check("/h/opencode/opencode.db-wal", None);
        check("/h/opencode/storage/session/p/ses_1.json", Some(RecordFile::OpencodeSession));
        check("/h/opencode/storage/message/ses_1/msg_1.json", None);
        check("/r/.aider.chat.history.md", Some(RecordFile::Document));
        check("/r/.specstory/history/a.md", Some(RecordFile::Document));
        let memory_file = RecordFile::MemoryFile(RecordedClient::Claude);
        check("/h/.claude/projects/-w/memory/MEMORY.md", Some(memory_file));
        check("/r/README.md", None);
        check("/r/package.json", None);
        assert_eq!(RecordFile::of_named(Path::new("x.json")), RecordFile::Document);
        assert_eq!(RecordFile::of_named(Path::new("/etc/passwd")), RecordFile::Lines);
    }
}
