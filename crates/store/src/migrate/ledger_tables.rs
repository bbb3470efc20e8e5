//! The tables of a ledger, with the statements of both databases.

use super::cells::Row;
use super::part::Part;
use crate::postgres::text_cipher::TextKind;

/// A table of the ledger, and how each database reads and writes its rows.
pub(crate) struct Table {
    pub name: &'static str,
    /// The types of the columns in order. The first `key` columns are the key.
    pub columns: &'static [ColumnType],
    pub key: usize,
    /// Whether its rows tell one ledger from another.
    pub identifies_store: bool,
    pub sqlite: Statements,
    pub postgres: Statements,
}

/// The statements of one database.
pub(crate) struct Statements {
    /// The columns in order, and the tables they come from.
    pub select: &'static str,
    /// The columns of the key.
    pub key: &'static str,
    /// The parameters to compare the key with.
    pub after: &'static str,
    /// In SQLite for one row, with a parameter for each column. In PostgreSQL for many: `moved` has the columns `c1`, `c2`…
    pub insert: &'static str,
}

impl Statements {
    /// Selects the first rows in key order.
    pub(crate) fn first_page(&self, limit: usize) -> String {
        let Statements { select, key, .. } = self;
        format!("SELECT {select} ORDER BY {key} LIMIT {limit}")
    }

    /// Selects the rows after a key, which is given as parameters, in key order.
    pub(crate) fn next_page(&self, limit: usize) -> String {
        let Statements { select, key, after, .. } = self;
        format!("SELECT {select} WHERE ({key}) > ({after}) ORDER BY {key} LIMIT {limit}")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Text,
    Number,
    Real,
    /// A text of which PostgreSQL stores the SHA-256.
    Hashed,
    /// A text that PostgreSQL stores encrypted.
    Sealed(TextKind),
}

impl Part for &'static Table {
    fn name(self) -> &'static str {
        self.name
    }

    fn key_of(self, row: &Row) -> Row {
        row[..self.key].to_vec()
    }

    fn identity_of(self, row: &Row) -> Option<String> {
        self.identifies_store.then(|| format!("{:?}", self.key_of(row)))
    }

    fn identifies_store(self) -> bool {
        self.identifies_store
    }
}

use ColumnType::{Hashed, Number, Real, Sealed, Text};

const SETUP: ColumnType = Sealed(TextKind::Setup);
const DOCUMENT: ColumnType = Sealed(TextKind::Document);

pub(crate) const TABLES: &[&Table] = &[
    &Table {
        name: "apps",
        columns: &[Text, Text, Text],
        key: 1,
        identifies_store: true,
        sqlite: Statements {
            select: "name, token_hash, created_at FROM apps",
            key: "name",
            after: "?1",
            insert: "INSERT OR IGNORE INTO apps (name, token_hash, created_at) VALUES (?1, ?2, ?3)",
        },
        postgres: Statements {
            select: "name, token_hash, created_at FROM hob.apps",
            key: "name",
            after: "$1",
            insert: "INSERT INTO hob.apps (name, token_hash, created_at) SELECT c1, c2, c3 FROM moved
                 ON CONFLICT DO NOTHING",
        },
    },
    // Without a lease: the first node that needs a session acquires it.
    &Table {
        name: "sessions",
        columns: &[
            Text, Text, Text, SETUP, SETUP, Text, SETUP, Text, SETUP, Number, Number, Number, Number, Text,
            Number, Number, Number, Number, Real, Number, Number,
        ],
        key: 1,
        identifies_store: true,
        sqlite: Statements {
            select: "id, app, agent, meta, cwd, model, system, permissions, mcp_servers, created_at,
                 closed_at, turn_count, last_turn_at, agent_session, input_tokens, output_tokens,
                 cached_read_tokens, cached_write_tokens, cost_usd, fence,
                 coalesce((SELECT max(seq) FROM events WHERE session = sessions.id), 0) FROM sessions",
            key: "id",
            after: "?1",
            // The last event's number follows from the events.
            insert: "INSERT OR IGNORE INTO sessions (id, app, agent, meta, cwd, model, system, permissions,
                     mcp_servers, created_at, closed_at, turn_count, last_turn_at, agent_session,
                     input_tokens, output_tokens, cached_read_tokens, cached_write_tokens, cost_usd, fence)
                 SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
                     ?18, ?19, ?20 WHERE ?21 IS NOT NULL",
        },
        postgres: Statements {
            select: "replace(s.id::text, '-', ''), s.app, s.agent, s.meta, s.cwd, s.model, s.system,
                 s.permissions, s.mcp_servers, s.created_at, h.closed_at, h.turn_count, h.last_turn_at,
                 h.agent_session, h.input_tokens, h.output_tokens, h.cached_read_tokens,
                 h.cached_write_tokens, h.cost_usd, h.fence, h.last_event
                 FROM hob.sessions s JOIN hob.heads h ON h.session = s.id",
            key: "s.id",
            after: "$1::text::uuid",
            insert: "WITH kept AS (
                     INSERT INTO hob.sessions (id, app, agent, meta, cwd, model, system, permissions,
                         mcp_servers, created_at)
                     SELECT c1::uuid, c2, c3, c4, c5, c6, c7, c8, c9, c10 FROM moved
                     ON CONFLICT DO NOTHING
                 ) INSERT INTO hob.heads (session, app, closed_at, turn_count, last_turn_at, agent_session,
                     input_tokens, output_tokens, cached_read_tokens, cached_write_tokens, cost_usd,
                     fence, last_event)
                 SELECT c1::uuid, c2, c11, c12, c13, c14, c15, c16, c17, c18, c19, c20, c21 FROM moved
                 ON CONFLICT DO NOTHING",
        },
    },
    &Table {
        name: "turns",
        columns: &[
            Text, Number, Text, Sealed(TextKind::Prompt), Sealed(TextKind::Answer), Text,
            Sealed(TextKind::TurnError), Number, Number, Number, Hashed, Text, Number, Number, Number,
            Number, Real, Number, Sealed(TextKind::Files),
        ],
        key: 2,
        identifies_store: false,
        sqlite: Statements {
            select: "session, number, state, prompt, text, stop_reason, error, queued_at, started_at,
                 ended_at, idempotency_key, request_digest, input_tokens, output_tokens,
                 cached_read_tokens, cached_write_tokens, cost_usd, first_event, files
                 FROM turns",
            key: "session, number",
            after: "?1, ?2",
            insert: "INSERT OR IGNORE INTO turns (session, number, state, prompt, text, stop_reason, error,
                     queued_at, started_at, ended_at, idempotency_key, request_digest, input_tokens,
                     output_tokens, cached_read_tokens, cached_write_tokens, cost_usd, first_event,
                     files)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
                     ?19)",
        },
        postgres: Statements {
            select: "replace(session::text, '-', ''), number, state, prompt, text, stop_reason, error,
                 queued_at, started_at, ended_at, idempotency_key, request_digest, input_tokens,
                 output_tokens, cached_read_tokens, cached_write_tokens, cost_usd, first_event, files
                 FROM hob.turns",
            key: "session, number",
            after: "$1::text::uuid, $2",
            insert: "INSERT INTO hob.turns (session, number, state, prompt, text, stop_reason, error,
                     queued_at, started_at, ended_at, idempotency_key, request_digest, input_tokens,
                     output_tokens, cached_read_tokens, cached_write_tokens, cost_usd, first_event, files,
                     app)
                 SELECT c1::uuid, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16,
                     c17, c18, c19, h.app FROM moved JOIN hob.heads h ON h.session = c1::uuid
                 ON CONFLICT DO NOTHING",
        },
    },
    &Table {
        name: "events",
        columns: &[Text, Number, Number, Text, Number, Sealed(TextKind::Event), Number],
        key: 2,
        identifies_store: false,
        sqlite: Statements {
            select: "session, seq, at, kind, turn, body, fence FROM events",
            key: "session, seq",
            after: "?1, ?2",
            insert: "INSERT INTO events (session, seq, at, kind, turn, body, fence)
                 SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
                 WHERE NOT EXISTS (SELECT 1 FROM events WHERE session = ?1 AND seq = ?2)",
        },
        postgres: Statements {
            select: "replace(session::text, '-', ''), seq, at, kind, turn, body, fence FROM hob.events",
            key: "session, seq",
            after: "$1::text::uuid, $2",
            insert: "INSERT INTO hob.events (session, seq, at, kind, turn, body, fence, app)
                 SELECT c1::uuid, c2, c3, c4, c5, c6, c7, h.app
                 FROM moved JOIN hob.heads h ON h.session = c1::uuid ON CONFLICT DO NOTHING",
        },
    },
    &Table {
        name: "usage",
        columns: &[Text, Number, Number, Number, Number, Number, Real, Number, Number],
        key: 2,
        identifies_store: false,
        sqlite: Statements {
            select: "app, day, input_tokens, output_tokens, cached_read_tokens, cached_write_tokens,
                 cost_usd, turns, failed FROM usage",
            key: "app, day",
            after: "?1, ?2",
            insert: "INSERT OR IGNORE INTO usage (app, day, input_tokens, output_tokens, cached_read_tokens,
                     cached_write_tokens, cost_usd, turns, failed)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        },
        postgres: Statements {
            // The parts of a day are one: in the order of their numbers, so that their sum is always the same.
            select: "app, day, input_tokens, output_tokens, cached_read_tokens, cached_write_tokens,
                 cost_usd, turns, failed FROM (SELECT app, day, sum(input_tokens)::bigint AS input_tokens,
                     sum(output_tokens)::bigint AS output_tokens,
                     sum(cached_read_tokens)::bigint AS cached_read_tokens,
                     sum(cached_write_tokens)::bigint AS cached_write_tokens,
                     sum(cost_usd ORDER BY part) AS cost_usd, sum(turns)::bigint AS turns,
                     sum(failed)::bigint AS failed FROM hob.usage GROUP BY app, day) AS days",
            key: "app, day",
            after: "$1, $2",
            insert: "INSERT INTO hob.usage (app, day, part, input_tokens, output_tokens, cached_read_tokens,
                     cached_write_tokens, cost_usd, turns, failed)
                 SELECT c1, c2, 0, c3, c4, c5, c6, c7, c8, c9 FROM moved ON CONFLICT DO NOTHING",
        },
    },
    &Table {
        name: "documents",
        columns: &[Text, Text, Number, DOCUMENT, DOCUMENT, Text],
        key: 2,
        identifies_store: false,
        sqlite: Statements {
            select: "app, id, created_at, input, body, kind FROM documents",
            key: "app, id",
            after: "?1, ?2",
            insert: "INSERT OR IGNORE INTO documents (app, id, created_at, input, body, kind)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        },
        postgres: Statements {
            select: "app, id, created_at, input, body, kind FROM hob.documents",
            key: "app, id",
            after: "$1, $2",
            insert: "INSERT INTO hob.documents (app, id, created_at, input, body, kind)
                 SELECT c1, c2, c3, c4, c5, c6 FROM moved ON CONFLICT DO NOTHING",
        },
    },
    &Table {
        name: "outbox",
        columns: &[Number, Text, Sealed(TextKind::Outbox), Number, Number],
        key: 1,
        identifies_store: false,
        sqlite: Statements {
            select: "id, app, body, attempts, set_aside FROM outbox",
            key: "id",
            after: "?1",
            insert: "INSERT OR IGNORE INTO outbox (id, app, body, attempts, set_aside)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
        },
        postgres: Statements {
            select: "id, app, body, attempts::bigint, set_aside::integer::bigint FROM hob.outbox",
            key: "id",
            after: "$1",
            insert: "INSERT INTO hob.outbox (id, app, body, attempts, set_aside) OVERRIDING SYSTEM VALUE
                 SELECT c1, c2, c3, c4::integer, c5 <> 0 FROM moved ON CONFLICT DO NOTHING",
        },
    },
    &Table {
        name: "audit",
        columns: &[Number, Number, Text, Text, Text],
        key: 1,
        identifies_store: false,
        sqlite: Statements {
            select: "id, at, action, target, detail FROM audit",
            key: "id",
            after: "?1",
            insert: "INSERT OR IGNORE INTO audit (id, at, action, target, detail)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
        },
        postgres: Statements {
            select: "id, at, action, target, detail FROM hob.audit",
            key: "id",
            after: "$1",
            insert: "INSERT INTO hob.audit (id, at, action, target, detail) OVERRIDING SYSTEM VALUE
                 SELECT c1, c2, c3, c4, c5 FROM moved ON CONFLICT DO NOTHING",
        },
    },
];
