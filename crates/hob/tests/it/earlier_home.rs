//! A home as the first build (0.1.0: ledger schema 7, memory schema 4) left it. That build is not needed: its schemas are
//! fixtures of the store, and the rows below are written as that build wrote them.
#![allow(clippy::disallowed_types, reason = "writes files of an earlier build")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

// `rusqlite` uses this library through its C interface.
use hob_sqlcipher as _;

use hob_domain::memory::{TurnKey, TurnRole, record_key, words_key};
use hob_domain::{DataKey, Timestamp, Token};
use hob_memory::OpeningKey;
use hob_testkit::TestHome;
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use crate::memory_setup::{folder, said};

const LEDGER: &str = include_str!("../../../store/tests/fixtures/sqlite_ledger_7.sql");
const MEMORY: &str = include_str!("../../../store/tests/fixtures/sqlite_memory_4.sql");

/// The versions of the schemas of the ledger and of the memory.
pub const SCHEMAS: [u32; 2] = [7, 4];

const KEY: [u8; 32] = [0x5a; 32];
/// The token of the app `first`.
pub const TOKEN: &str = "hob_a-token-that-the-first-build-printed";
/// A session of this app with one turn.
pub const SESSION: &str = "00112233445566778899aabbccddeeff";
/// The session of the owner's agent.
pub const CONVERSATION: &str = "s1";

const PROMPT: &str = "which port does the harbour server listen on";
const ANSWER: &str = "the harbour server listens on port 7717";
/// A turn that only the full-text index of the first build had.
pub const LIGHTHOUSE: &str = "the lighthouse keeper painted the door green";
/// A turn that was forgotten.
const FORGOTTEN: &str = "the kraken sleeps under the third pier";
/// When the conversation began: 2026-01-02T03:00:00Z, in seconds.
const START: i64 = 1_767_322_800;
/// The number of dimensions of a vector.
const VECTOR_BYTES: usize = 256;

pub struct EarlierHome {
    pub home: TestHome,
    /// The folder of the conversation's project.
    pub project: PathBuf,
}

/// A turn of the conversation.
struct EarlierTurn {
    role: TurnRole,
    /// What was said.
    said: String,
    /// What was stored of it.
    text: String,
    sealed: Option<Vec<u8>>,
}

impl EarlierHome {
    pub fn new() -> EarlierHome {
        let home = TestHome::new();
        let root = home.hob_home();
        fs::create_dir_all(&root).unwrap();
        fs::set_permissions(&root, Permissions::from_mode(0o700)).unwrap();
        let key = json!({"kind": "raw", "version": 1, "key": hex(&KEY)});
        write_private(&root.join("key"), &format!("{key}\n"));
        let project = folder(&home, "work");
        write_ledger(&home);
        write_memory(&root.join("memory.db"), project.to_str().unwrap());
        EarlierHome { home, project }
    }

    /// Returns the versions of both schemas.
    pub fn schemas(&self) -> [u32; 2] {
        ["hob.db", "memory.db"].map(|name| {
            let file = open(&self.home.hob_home().join(name));
            file.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
        })
    }

    /// Makes both databases look like those of a later build.
    pub fn set_schemas(&self, version: u32) {
        for name in ["hob.db", "memory.db"] {
            let file = open(&self.home.hob_home().join(name));
            file.pragma_update(None, "user_version", version).unwrap();
        }
    }
}

/// Returns the texts that the memory holds, masked.
pub fn texts() -> Vec<String> {
    turns().into_iter().map(|turn| turn.text).collect()
}

/// Returns what was said, with its secret.
pub fn originals() -> Vec<String> {
    turns().into_iter().map(|turn| turn.said).collect()
}

/// Returns the records of the conversation's transcript, which also has the turn that was forgotten.
pub fn records() -> Vec<Value> {
    let mut said_texts: Vec<(TurnRole, String)> =
        turns().into_iter().map(|turn| (turn.role, turn.said)).collect();
    said_texts.push((TurnRole::User, FORGOTTEN.to_owned()));
    let record = |(n, (role, text)): (usize, (TurnRole, String))| {
        said(CONVERSATION, n, role.as_str(), &text)
    };
    said_texts.into_iter().enumerate().map(record).collect()
}

fn turns() -> Vec<EarlierTurn> {
    let plain = |role, text: &str| EarlierTurn {
        role,
        said: text.to_owned(),
        text: text.to_owned(),
        sealed: None,
    };
    let secret = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
    let text = "deploy with the token [secret:github-token] for now";
    let mask = "[secret:github-token]";
    let original = json!([{"at": text.find(mask), "mask": mask.len(), "secret": secret}]);
    let sealing = OpeningKey::of(&DataKey::from_bytes(KEY)).sealing_key();
    let sealed = EarlierTurn {
        role: TurnRole::User,
        said: text.replace(mask, &secret),
        text: text.to_owned(),
        sealed: sealing.seal(original.to_string().as_bytes()),
    };
    vec![
        plain(TurnRole::User, PROMPT),
        plain(TurnRole::Assistant, ANSWER),
        sealed,
        plain(TurnRole::Assistant, LIGHTHOUSE),
    ]
}

fn open(path: &Path) -> Connection {
    let file = Connection::open(path).unwrap();
    file.pragma_update(None, "key", format!("x'{}'", hex(&KEY))).unwrap();
    file.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).unwrap();
    file.pragma_update(None, "foreign_keys", true).unwrap();
    file
}

fn create(path: &Path, schema: &str, version: u32) -> Connection {
    write_private(path, "");
    let file = open(path);
    file.execute_batch(schema).unwrap();
    file.pragma_update(None, "user_version", version).unwrap();
    file
}

fn write_ledger(home: &TestHome) {
    let file = create(&home.hob_home().join("hob.db"), LEDGER, SCHEMAS[0]);
    let workspace = home.hob_home().join("workspaces").join(SESSION);
    fs::create_dir_all(&workspace).unwrap();
    let now = Timestamp::now();
    let at = now.as_microsecond();
    let token = Token::presented(TOKEN).hash().to_hex();
    file.execute("INSERT INTO apps VALUES ('first', ?1, ?2)", params![token, now.to_string()])
        .unwrap();
    file.execute(
        "INSERT INTO sessions (id, app, agent, meta, cwd, permissions, mcp_servers, created_at, turn_count, last_turn_at,
             agent_session, input_tokens, output_tokens, cost_usd, holder, fence)
         VALUES (?1, 'first', 'demo', '{\"purpose\":\"upgrade\"}', ?2, 'deny', '[]', ?3, 1, ?3, NULL, 3, 5, 0.25, 'node', 1)",
        params![SESSION, workspace.to_str().unwrap(), at],
    )
    .unwrap();
    file.execute(
        "INSERT INTO turns (session, number, state, prompt, text, stop_reason, queued_at, started_at, ended_at, input_tokens,
             output_tokens, cached_read_tokens, cached_write_tokens, cost_usd, first_event)
         VALUES (?1, 1, 'finished', 'weigh the anchor', 'the anchor is up', 'end_turn', ?2, ?2, ?2, 3, 5, 0, 0, 0.25, 2)",
        params![SESSION, at],
    )
    .unwrap();
    let message = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "a",
        "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "the anchor is up"}}}});
    let ended = json!({"turn_index": 1, "state": "finished", "stop_reason": "end_turn"});
    let events = [
        ("create", None, json!({"agent": "demo"})),
        ("message", Some(1), message),
        ("turn", Some(1), ended),
    ];
    for (seq, (kind, turn, body)) in (1..).zip(events) {
        file.execute(
            "INSERT INTO events (session, seq, at, kind, turn, body, fence) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1)",
            params![SESSION, seq, at, kind, turn, body.to_string()],
        )
        .unwrap();
    }
    file.execute(
        "INSERT INTO audit (at, action, target, detail) VALUES (?1, 'app_create', 'first', '{}')",
        [at],
    )
    .unwrap();
}

fn write_memory(path: &Path, project: &str) {
    let file = create(path, MEMORY, SCHEMAS[1]);
    let turns = turns();
    let ended = (START + turns.len() as i64) * 1_000_000;
    file.execute("INSERT INTO projects VALUES (1, '', ?1)", [project]).unwrap();
    file.execute(
        "INSERT INTO sessions VALUES (1, '', ?1, 'claude', 1, ?2, ?3, ?4)",
        params![CONVERSATION, START * 1_000_000, ended, turns.len() as i64],
    )
    .unwrap();
    let mut length = 0;
    for (n, turn) in turns.iter().enumerate() {
        let seq = n as i64 + 1;
        let at = (START + n as i64) * 1_000_000;
        let key = record_key(CONVERSATION, &format!("{CONVERSATION}-{n}"), turn.role, &turn.said);
        let words = words_key(turn.role, &turn.said);
        file.execute(
            "INSERT INTO turns (seq, id, speaker, session, project, worktree, key, words, role, tier, text, sealed, ts, at,
                 client, source, rules)
             VALUES (?1, ?2, '', 1, 1, ?3, ?4, ?5, ?6, 'episodic', ?7, ?8, ?9, ?9, 'claude', 'hook', 3)",
            params![
                seq,
                key.record_id().as_str(),
                project,
                key.bytes(),
                words.bytes(),
                turn.role.as_str(),
                turn.text,
                turn.sealed,
                at
            ],
        )
        .unwrap();
        if turn.text == LIGHTHOUSE {
            let sql = "INSERT INTO term_index (rowid, terms, scope) VALUES (?1, ?2, 'o p1 s1')";
            file.execute(sql, params![seq, turn.text]).unwrap();
            continue;
        }
        let words = turn.text.split(' ').count() as i64;
        length += words;
        file.execute(
            "INSERT INTO indexed (seq, project, session, ts, at, length) VALUES (?1, 1, 1, ?2, ?2, ?3)",
            params![seq, at, words],
        )
        .unwrap();
        file.execute("INSERT INTO terms VALUES (?1, ?2)", params![seq, turn.text]).unwrap();
        let vector = vec![1_u8; VECTOR_BYTES];
        file.execute("INSERT INTO vectors VALUES (1, ?1, ?2)", params![seq, vector]).unwrap();
        let code = vec![0xff_u8; VECTOR_BYTES / 8];
        file.execute("INSERT INTO codes VALUES (?1, 1, ?2)", params![seq, code]).unwrap();
    }
    let indexed = turns.len() as i64 - 1;
    file.execute("INSERT INTO index_projects VALUES (1, ?1, ?2)", [indexed, length]).unwrap();
    file.execute("INSERT INTO index_sessions VALUES (1, ?1, ?2)", [indexed, length]).unwrap();
    let (n, role) = (turns.len(), TurnRole::User);
    let key: TurnKey = record_key(CONVERSATION, &format!("{CONVERSATION}-{n}"), role, FORGOTTEN);
    file.execute(
        "INSERT INTO forgotten (speaker, session, words, key) VALUES ('', ?1, ?2, ?3)",
        params![CONVERSATION, words_key(role, FORGOTTEN).bytes(), key.bytes()],
    )
    .unwrap();
}

fn write_private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
