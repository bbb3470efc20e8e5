//! Rows of a migration: decrypted, as the other store has them, and as this database stores them.

use hob_domain::StoreError;
use hob_domain::memory::{NOTE_SESSION, TurnKey};
use tokio_postgres::Row as SqlRow;

use super::PostgresMemory;
use super::cipher::{Body, Cipher, Name};
use super::names::record_id;
use super::rows::Opened;
use crate::migrate::{Cell, Cells, MemoryPart, MigratedTurn, Row};
use crate::postgres::connections::Values;
use crate::postgres::text::{put, take};
use crate::values::damaged;

/// Inserts rows of any part but turns and vectors, unless they exist.
pub(super) async fn put_rows(
    memory: &PostgresMemory,
    part: MemoryPart,
    rows: Vec<Row>,
) -> Result<(), StoreError> {
    let rows = rows.into_iter().map(Cells::of).collect();
    let mut columns = Columns { cipher: &memory.cipher, rows };
    match part {
        MemoryPart::Projects => put_projects(memory, &mut columns).await,
        MemoryPart::Sessions => put_sessions(memory, &mut columns).await,
        MemoryPart::Kinds => put_kinds(memory, &mut columns).await,
        MemoryPart::Forgotten => put_forgotten(memory, &mut columns).await,
        MemoryPart::ForgottenSessions => put_forgotten_sessions(memory, &mut columns).await,
        MemoryPart::Imports => put_imports(memory, &mut columns).await,
        MemoryPart::Events => put_events(memory, &mut columns).await,
        MemoryPart::Numbers => put_numbers(memory, &mut columns).await,
        MemoryPart::Turns | MemoryPart::ModelVectors => Err(damaged("a migration of turns")),
    }
}

/// The rows of a part, read column by column.
struct Columns<'a> {
    cipher: &'a Cipher,
    rows: Vec<Cells>,
}

/// Names as they are stored: hashed, and encrypted.
struct NameColumns {
    hashed: Vec<Vec<u8>>,
    encrypted: Vec<Vec<u8>>,
}

/// Digests as they are stored: hashed, and encrypted.
struct KeyColumns {
    hashed: Vec<Option<Vec<u8>>>,
    encrypted: Vec<Option<Vec<u8>>>,
}

impl Columns<'_> {
    /// Takes the next cell of every row.
    fn next<T>(
        &mut self,
        take: impl Fn(&mut Cells) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.rows.iter_mut().map(take).collect()
    }

    fn numbers(&mut self) -> Result<Vec<i64>, StoreError> {
        self.next(Cells::number)
    }

    fn texts(&mut self) -> Result<Vec<String>, StoreError> {
        self.next(Cells::text)
    }

    /// Texts in a form that PostgreSQL can store.
    fn stored_texts(&mut self) -> Result<Vec<String>, StoreError> {
        Ok(self.texts()?.iter().map(|text| put(text).into_owned()).collect())
    }

    fn names(&mut self, kind: Name) -> Result<NameColumns, StoreError> {
        let names = self.texts()?;
        Ok(self.name_columns(kind, &names))
    }

    fn name_columns(&self, kind: Name, names: &[String]) -> NameColumns {
        NameColumns {
            hashed: names.iter().map(|name| self.cipher.hash_name(kind, name)).collect(),
            encrypted: names.iter().map(|name| self.cipher.encrypt_name(kind, name)).collect(),
        }
    }

    fn keys(&mut self) -> Result<KeyColumns, StoreError> {
        let keys = self.next(Cells::maybe_key)?;
        let hash = |key: &Option<TurnKey>| key.as_ref().map(|key| self.cipher.hash_key(key));
        let encrypt = |key: &Option<TurnKey>| key.as_ref().map(|key| self.cipher.encrypt_key(key));
        Ok(KeyColumns {
            hashed: keys.iter().map(hash).collect(),
            encrypted: keys.iter().map(encrypt).collect(),
        })
    }
}

async fn put_projects(
    memory: &PostgresMemory,
    columns: &mut Columns<'_>,
) -> Result<(), StoreError> {
    let (ids, speakers) = (columns.numbers()?, columns.texts()?);
    let roots = columns.names(Name::Project)?;
    let sql = "INSERT INTO hob.memory_projects
             (id, turns, length, sessions, speaker, root_key, root)
         SELECT u.id, 0, 0, 0, u.speaker, u.key, u.name
         FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bytea[])
             u (id, speaker, key, name) ON CONFLICT DO NOTHING";
    memory.write_again(sql, &[&ids, &speakers, &roots.hashed, &roots.encrypted]).await
}

async fn put_sessions(
    memory: &PostgresMemory,
    columns: &mut Columns<'_>,
) -> Result<(), StoreError> {
    let (ids, speakers, texts) = (columns.numbers()?, columns.texts()?, columns.texts()?);
    let (clients, projects) = (columns.stored_texts()?, columns.numbers()?);
    let (started, ended) = (columns.numbers()?, columns.numbers()?);
    let notes: Vec<bool> = texts.iter().map(|name| name.starts_with(NOTE_SESSION)).collect();
    let NameColumns { hashed, encrypted } = columns.name_columns(Name::Session, &texts);
    let sql = "WITH arrived AS (INSERT INTO hob.memory_sessions
             (id, project, started, ended, turns, length, note, speaker, client, name_key,
              name)
         SELECT u.id, u.project, u.started, u.ended, 0, 0, u.note, u.speaker, u.client,
             u.key, u.name
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::boolean[],
                 $6::text[], $7::text[], $8::bytea[], $9::bytea[])
             u (id, project, started, ended, note, speaker, client, key, name)
         ON CONFLICT DO NOTHING RETURNING project),
         sums AS (SELECT project, count(*) AS more FROM arrived GROUP BY project)
         UPDATE hob.memory_projects p SET sessions = p.sessions + s.more
         FROM sums s WHERE p.id = s.project";
    let values: Values<'_> =
        &[&ids, &projects, &started, &ended, &notes, &speakers, &clients, &hashed, &encrypted];
    memory.write_again(sql, values).await
}

async fn put_kinds(memory: &PostgresMemory, columns: &mut Columns<'_>) -> Result<(), StoreError> {
    let (ids, names, widths) = (columns.numbers()?, columns.stored_texts()?, columns.numbers()?);
    let sql = "INSERT INTO hob.memory_kinds (id, name, width) OVERRIDING SYSTEM VALUE
         SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[])
         ON CONFLICT DO NOTHING";
    memory.write_again(sql, &[&ids, &names, &widths]).await
}

async fn put_forgotten(
    memory: &PostgresMemory,
    columns: &mut Columns<'_>,
) -> Result<(), StoreError> {
    let (ids, speakers) = (columns.numbers()?, columns.texts()?);
    let sessions = columns.names(Name::Session)?;
    let (words, records, answers) = (columns.keys()?, columns.keys()?, columns.keys()?);
    let nths = columns.next(Cells::maybe_number)?;
    let sql = "INSERT INTO hob.memory_forgotten (id, nth, speaker, session, name, words,
             words_kept, key, key_kept, answer, answer_kept) OVERRIDING SYSTEM VALUE
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bytea[],
             $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bytea[],
             $11::bytea[])
         ON CONFLICT DO NOTHING";
    let values: Values<'_> = &[
        &ids,
        &nths,
        &speakers,
        &sessions.hashed,
        &sessions.encrypted,
        &words.hashed,
        &words.encrypted,
        &records.hashed,
        &records.encrypted,
        &answers.hashed,
        &answers.encrypted,
    ];
    memory.write_again(sql, values).await
}

async fn put_forgotten_sessions(
    memory: &PostgresMemory,
    columns: &mut Columns<'_>,
) -> Result<(), StoreError> {
    let speakers = columns.texts()?;
    let sessions = columns.names(Name::Session)?;
    let until = columns.numbers()?;
    let sql = "INSERT INTO hob.memory_forgotten_sessions (speaker, session, name, until)
         SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::bigint[])
         ON CONFLICT DO NOTHING";
    memory.write_again(sql, &[&speakers, &sessions.hashed, &sessions.encrypted, &until]).await
}

async fn put_imports(memory: &PostgresMemory, columns: &mut Columns<'_>) -> Result<(), StoreError> {
    let (paths, sizes, modified) = (columns.keys()?, columns.numbers()?, columns.numbers()?);
    let sql = "INSERT INTO hob.memory_imports (path, path_kept, size, modified)
         SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[])
         ON CONFLICT DO NOTHING";
    memory.write_again(sql, &[&paths.hashed, &paths.encrypted, &sizes, &modified]).await
}

async fn put_events(memory: &PostgresMemory, columns: &mut Columns<'_>) -> Result<(), StoreError> {
    let (ids, at, kinds) = (columns.numbers()?, columns.numbers()?, columns.stored_texts()?);
    let seal = |text: &String| memory.cipher.seal(Body::Event, text.as_bytes());
    let details: Vec<Vec<u8>> = columns.texts()?.iter().map(seal).collect();
    let sql = "INSERT INTO hob.memory_events (id, at, kind, detail) OVERRIDING SYSTEM VALUE
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bytea[])
         ON CONFLICT DO NOTHING";
    memory.write_again(sql, &[&ids, &at, &kinds, &details]).await
}

async fn put_numbers(memory: &PostgresMemory, columns: &mut Columns<'_>) -> Result<(), StoreError> {
    let (names, numbers) = (columns.texts()?, columns.numbers()?);
    let last = |name: &str| {
        let place = names.iter().position(|other| other == name);
        place.map_or(0, |place| numbers[place])
    };
    let sql = "UPDATE hob.memory_state SET last_seq = greatest(last_seq, $1),
         last_session = greatest(last_session, $2), last_project = greatest(last_project, $3)";
    memory.write_again(sql, &[&last("turns"), &last("sessions"), &last("projects")]).await
}

/// Decrypts a row of any part.
pub(super) fn decrypt_row(
    cipher: &Cipher,
    part: MemoryPart,
    row: &SqlRow,
) -> Result<Row, StoreError> {
    let number = |column: usize| Cell::Number(row.get(column));
    let text = |column: usize| Cell::Text(take(row.get(column)));
    let name =
        |kind: Name, column: usize| cipher.decrypt_name(kind, row.get(column)).map(Cell::Text);
    let key =
        |column: usize| decrypt_key(cipher, row, column).map(|key| Cell::maybe(key, Cell::key));
    Ok(match part {
        MemoryPart::Projects => vec![number(0), text(1), name(Name::Project, 2)?],
        MemoryPart::Sessions => vec![
            number(0),
            text(1),
            name(Name::Session, 2)?,
            text(3),
            number(4),
            number(5),
            number(6),
        ],
        MemoryPart::Kinds => vec![number(0), text(1), number(2)],
        MemoryPart::Turns => decrypt_turn(cipher, row)?.row(),
        MemoryPart::ModelVectors => {
            let body = Body::ModelVector(row.get(3), row.get(0), row.get(1));
            vec![number(0), number(1), Cell::Bytes(cipher.open(body, row.get(2))?)]
        }
        MemoryPart::Forgotten => vec![
            number(0),
            text(1),
            name(Name::Session, 2)?,
            key(3)?,
            key(5)?,
            key(7)?,
            Cell::maybe(row.get(9), Cell::Number),
        ],
        MemoryPart::ForgottenSessions => vec![text(0), name(Name::Session, 1)?, number(2)],
        MemoryPart::Imports => vec![key(0)?, number(2), number(3)],
        MemoryPart::Events => {
            let detail = cipher.open(Body::Event, row.get(3))?;
            let detail = String::from_utf8_lossy(&detail).into_owned();
            vec![number(0), number(1), text(2), Cell::Text(detail)]
        }
        MemoryPart::Numbers => vec![text(0), number(1)],
    })
}

fn decrypt_turn(cipher: &Cipher, row: &SqlRow) -> Result<MigratedTurn, StoreError> {
    let (seq, speaker): (i64, &str) = (row.get(0), row.get(2));
    let Opened { worktree, cue, text } = Opened::new(cipher, speaker, seq, row.get(5))?;
    let other = |column: usize| -> Result<Option<String>, StoreError> {
        let stored: Option<&[u8]> = row.get(column);
        stored.map(|id| cipher.decrypt_name(Name::Turn, id)).transpose()
    };
    let words = decrypt_key(cipher, row, 11)?;
    Ok(MigratedTurn {
        seq,
        id: record_id(cipher, row.get(1))?,
        speaker: speaker.to_owned(),
        session: row.get(3),
        project: row.get(4),
        worktree,
        key: decrypt_key(cipher, row, 6)?,
        answer: decrypt_key(cipher, row, 8)?,
        nth: row.get(10),
        words: words.ok_or_else(|| damaged("a turn of the memory"))?,
        role: row.get(13),
        tier: row.get(14),
        text,
        sealed: row.get(15),
        cue,
        ts: row.get(16),
        at: row.get(17),
        client: take(row.get(18)),
        source: take(row.get(19)),
        superseded_by: other(20)?,
        supersedes: other(21)?,
        rules: i64::from(row.get::<_, i32>(22)),
    })
}

/// Decrypts a digest from two columns: the hash, and then the encrypted digest.
fn decrypt_key(
    cipher: &Cipher,
    row: &SqlRow,
    column: usize,
) -> Result<Option<TurnKey>, StoreError> {
    let (hash, encrypted): (Option<&[u8]>, Option<&[u8]>) = (row.get(column), row.get(column + 1));
    hash.map(|hash| cipher.decrypt_key(hash, encrypted.unwrap_or_default())).transpose()
}
