//! Rows of a memory on the server, in clear and as they are stored.

use hob_domain::StoreError;
use hob_domain::memory::TurnKey;
use tokio_postgres::Row as SqlRow;

use super::PostgresMemory;
use super::cipher::{Body, Cipher, Name};
use super::rows::Opened;
use crate::migrate::{Cell, Cells, MemoryPart, MovedTurn, Row};
use crate::postgres::connections::Values;
use crate::postgres::text::{put, take};

/// Stores rows of anything but turns and vectors, unless they are there.
pub(super) async fn put_rows(
    memory: &PostgresMemory,
    part: MemoryPart,
    rows: Vec<Row>,
) -> Result<(), StoreError> {
    let cipher = &memory.cipher;
    let mut all: Vec<Cells> = rows.into_iter().map(Cells::of).collect();
    match part {
        MemoryPart::Projects => {
            let ids = column(&mut all, Cells::number)?;
            let speakers = column(&mut all, Cells::text)?;
            let roots = column(&mut all, Cells::text)?;
            let keys: Vec<Vec<u8>> =
                roots.iter().map(|root| cipher.name_key(Name::Project, root)).collect();
            let names: Vec<Vec<u8>> =
                roots.iter().map(|root| cipher.name(Name::Project, root)).collect();
            let sql = "INSERT INTO hob.memory_projects
                     (id, turns, length, sessions, speaker, root_key, root)
                 SELECT u.id, 0, 0, 0, u.speaker, u.key, u.name
                 FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bytea[])
                     u (id, speaker, key, name) ON CONFLICT DO NOTHING";
            memory.write_again(sql, &[&ids, &speakers, &keys, &names]).await
        }
        MemoryPart::Sessions => {
            let ids = column(&mut all, Cells::number)?;
            let speakers = column(&mut all, Cells::text)?;
            let texts = column(&mut all, Cells::text)?;
            let clients = stored_texts(&column(&mut all, Cells::text)?);
            let projects = column(&mut all, Cells::number)?;
            let started = column(&mut all, Cells::number)?;
            let ended = column(&mut all, Cells::number)?;
            let notes: Vec<bool> = texts.iter().map(|name| name.starts_with("note:")).collect();
            let keys: Vec<Vec<u8>> =
                texts.iter().map(|name| cipher.name_key(Name::Session, name)).collect();
            let names: Vec<Vec<u8>> =
                texts.iter().map(|name| cipher.name(Name::Session, name)).collect();
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
                &[&ids, &projects, &started, &ended, &notes, &speakers, &clients, &keys, &names];
            memory.write_again(sql, values).await
        }
        MemoryPart::Kinds => {
            let ids = column(&mut all, Cells::number)?;
            let names = stored_texts(&column(&mut all, Cells::text)?);
            let widths = column(&mut all, Cells::number)?;
            let sql = "INSERT INTO hob.memory_kinds (id, name, width) OVERRIDING SYSTEM VALUE
                 SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[])
                 ON CONFLICT DO NOTHING";
            memory.write_again(sql, &[&ids, &names, &widths]).await
        }
        MemoryPart::Forgotten => {
            let ids = column(&mut all, Cells::number)?;
            let speakers = column(&mut all, Cells::text)?;
            let sessions = column(&mut all, Cells::text)?;
            let words = column(&mut all, Cells::key)?;
            let keys = column(&mut all, Cells::maybe_key)?;
            let answers = column(&mut all, Cells::maybe_key)?;
            let nths = column(&mut all, Cells::maybe_number)?;
            let session_keys: Vec<Vec<u8>> =
                sessions.iter().map(|name| cipher.name_key(Name::Session, name)).collect();
            let names: Vec<Vec<u8>> =
                sessions.iter().map(|name| cipher.name(Name::Session, name)).collect();
            let code = |key: &Option<TurnKey>| key.as_ref().map(|key| cipher.key(key));
            let keep = |key: &Option<TurnKey>| key.as_ref().map(|key| cipher.keep(key));
            let word_codes: Vec<Vec<u8>> = words.iter().map(|key| cipher.key(key)).collect();
            let words_kept: Vec<Vec<u8>> = words.iter().map(|key| cipher.keep(key)).collect();
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
                &session_keys,
                &names,
                &word_codes,
                &words_kept,
                &keys.iter().map(code).collect::<Vec<_>>(),
                &keys.iter().map(keep).collect::<Vec<_>>(),
                &answers.iter().map(code).collect::<Vec<_>>(),
                &answers.iter().map(keep).collect::<Vec<_>>(),
            ];
            memory.write_again(sql, values).await
        }
        MemoryPart::ForgottenSessions => {
            let speakers = column(&mut all, Cells::text)?;
            let sessions = column(&mut all, Cells::text)?;
            let until = column(&mut all, Cells::number)?;
            let keys: Vec<Vec<u8>> =
                sessions.iter().map(|name| cipher.name_key(Name::Session, name)).collect();
            let names: Vec<Vec<u8>> =
                sessions.iter().map(|name| cipher.name(Name::Session, name)).collect();
            let sql = "INSERT INTO hob.memory_forgotten_sessions (speaker, session, name, until)
                 SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::bigint[])
                 ON CONFLICT DO NOTHING";
            memory.write_again(sql, &[&speakers, &keys, &names, &until]).await
        }
        MemoryPart::Imports => {
            let paths = column(&mut all, Cells::key)?;
            let sizes = column(&mut all, Cells::number)?;
            let modified = column(&mut all, Cells::number)?;
            let codes: Vec<Vec<u8>> = paths.iter().map(|path| cipher.key(path)).collect();
            let kept: Vec<Vec<u8>> = paths.iter().map(|path| cipher.keep(path)).collect();
            let sql = "INSERT INTO hob.memory_imports (path, path_kept, size, modified)
                 SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[])
                 ON CONFLICT DO NOTHING";
            memory.write_again(sql, &[&codes, &kept, &sizes, &modified]).await
        }
        MemoryPart::Events => {
            let ids = column(&mut all, Cells::number)?;
            let at = column(&mut all, Cells::number)?;
            let kinds = stored_texts(&column(&mut all, Cells::text)?);
            let details = column(&mut all, Cells::text)?;
            let details: Vec<Vec<u8>> =
                details.iter().map(|text| cipher.seal(Body::Event, text.as_bytes())).collect();
            let sql = "INSERT INTO hob.memory_events (id, at, kind, detail) OVERRIDING SYSTEM VALUE
                 SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bytea[])
                 ON CONFLICT DO NOTHING";
            memory.write_again(sql, &[&ids, &at, &kinds, &details]).await
        }
        _ => {
            let names = column(&mut all, Cells::text)?;
            let numbers = column(&mut all, Cells::number)?;
            let last = |name: &str| {
                let place = names.iter().position(|known| known == name);
                place.map_or(0, |place| numbers[place])
            };
            let sql = "UPDATE hob.memory_state SET last_seq = greatest(last_seq, $1),
                 last_session = greatest(last_session, $2),
                 last_project = greatest(last_project, $3)";
            memory.write_again(sql, &[&last("turns"), &last("sessions"), &last("projects")]).await
        }
    }
}

/// The next cell of every row.
fn column<T>(
    rows: &mut [Cells],
    take: impl Fn(&mut Cells) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    rows.iter_mut().map(take).collect()
}

fn stored_texts(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| put(text).into_owned()).collect()
}

/// A row in clear.
pub(super) fn taken(cipher: &Cipher, part: MemoryPart, row: &SqlRow) -> Result<Row, StoreError> {
    let number = |column: usize| Cell::Number(row.get(column));
    let text = |column: usize| Cell::Text(take(row.get(column)));
    let name = |of: Name, column: usize| cipher.unnamed(of, row.get(column)).map(Cell::Text);
    // A code, and behind it what is kept of the digest.
    let digest = |column: usize| -> Result<Option<TurnKey>, StoreError> {
        let code: Option<&[u8]> = row.get(column);
        let kept: Option<&[u8]> = row.get(column + 1);
        code.map(|code| cipher.kept(code, kept.unwrap_or_default())).transpose()
    };
    let key = |column: usize| digest(column).map(|key| Cell::maybe(key, Cell::key));
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
        MemoryPart::Turns => {
            let (seq, speaker): (i64, &str) = (row.get(0), row.get(2));
            let Opened { worktree, cue, text } = Opened::new(cipher, speaker, seq, row.get(5))?;
            let other = |column: usize| -> Result<Option<String>, StoreError> {
                let stored: Option<&[u8]> = row.get(column);
                stored.map(|id| cipher.unnamed(Name::Turn, id)).transpose()
            };
            let turn = MovedTurn {
                seq,
                id: super::names::record_id(cipher, row.get(1))?,
                speaker: speaker.to_owned(),
                session: row.get(3),
                project: row.get(4),
                worktree,
                key: digest(6)?,
                answer: digest(8)?,
                nth: row.get(10),
                words: digest(11)?.ok_or_else(|| crate::values::damaged("a turn of the memory"))?,
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
            };
            turn.row()
        }
        MemoryPart::ModelVectors => {
            let (seq, kind) = (row.get(0), row.get(1));
            let of = Body::ModelVector(row.get(3), seq, kind);
            vec![number(0), number(1), Cell::Bytes(cipher.open(of, row.get(2))?)]
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
