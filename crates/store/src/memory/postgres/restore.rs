//! Restoring hidden turns.

use hob_domain::memory::{Forget, NewTurn, Principal, RecordId};
use hob_domain::{StoreError, Timestamp};
use tokio_postgres::{Error, Row};

use super::batch::{TurnBatch, lock};
use super::cipher::{Body, Cipher, Name};
use super::names::StoredNames;
use super::rows::ask;
use crate::memory::hidden::HiddenTurn;
use crate::memory::identity::TurnNames;
use crate::postgres::connections::Client;
use crate::values::damaged;

/// Restores hidden turns. A turn that was stored again meanwhile stays as it is. Returns how many
/// were restored.
pub(super) async fn restore(
    client: &Client,
    cipher: &Cipher,
    speaker: &str,
    turns: &Forget,
    since: Timestamp,
) -> Result<Result<usize, StoreError>, Error> {
    let numbers = lock(client).await?;
    // Of a session, those turns come back that were forgotten with it. One that was forgotten alone stays forgotten.
    let (condition, key) = match turns {
        Forget::Record(id) => ("turn = $2", cipher.hash_name(Name::Turn, id.as_str())),
        Forget::Session(name) => (
            "session = $2 AND hidden_at = (SELECT until FROM hob.memory_forgotten_sessions
                 WHERE speaker = $1 AND session = $2)",
            cipher.hash_name(Name::Session, name),
        ),
    };
    let sql = format!(
        "SELECT id, session, words, words_kept, key, key_kept, answer, answer_kept, nth,
             turn, body
         FROM hob.memory_forgotten WHERE speaker = $1 AND {condition} AND body IS NOT NULL
             AND words_kept IS NOT NULL AND hidden_at >= $3 ORDER BY id"
    );
    let rows = ask(client, &sql, &[&speaker, &key, &since.as_microsecond()]).await?;
    // Nothing is written before everything is decrypted.
    let opened = rows.iter().map(|row| RestoredTurn::open(cipher, speaker, row));
    let restored: Vec<RestoredTurn> = match opened.collect() {
        Ok(restored) => restored,
        Err(error) => return Ok(Err(error)),
    };
    if restored.is_empty() {
        return Ok(Ok(0));
    }
    if let Forget::Session(_) = turns {
        let sql = "DELETE FROM hob.memory_forgotten_sessions WHERE speaker = $1 AND session = $2";
        ask(client, sql, &[&speaker, &key]).await?;
        if speaker == Principal::Owner.as_str() {
            // Imports are done though the session refused their turns. The next one reads all files again.
            ask(client, "DELETE FROM hob.memory_imports", &[]).await?;
        }
    }
    let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    ask(client, "DELETE FROM hob.memory_forgotten WHERE id = ANY($1)", &[&ids]).await?;
    let links: Vec<(RecordId, RecordId)> =
        restored.iter().flat_map(|one| one.links.clone()).collect();
    let (turns, names): (Vec<NewTurn>, Vec<StoredNames>) =
        restored.into_iter().map(|one| (one.turn, one.names)).unzip();
    let mut batch = TurnBatch::empty(cipher, speaker, numbers);
    batch.read(client, &turns, &names).await?;
    let missing =
        turns.iter().zip(&names).filter(|(turn, names)| batch.restore(turn, names)).count();
    batch.write(client, numbers).await?;
    for (older, newer) in &links {
        link(client, cipher, speaker, older, newer).await?;
        // If the other turn is still hidden, it brings the link when it comes back.
        for id in [older, newer] {
            note_link(client, cipher, speaker, id, (older, newer)).await?;
        }
    }
    Ok(Ok(missing))
}

struct RestoredTurn {
    turn: NewTurn,
    names: StoredNames,
    /// Pairs of a superseded turn and the turn that supersedes it.
    links: Vec<(RecordId, RecordId)>,
}

impl RestoredTurn {
    fn open(cipher: &Cipher, speaker: &str, row: &Row) -> Result<RestoredTurn, StoreError> {
        let key = |code: usize| {
            let (code, kept): (Option<&[u8]>, Option<&[u8]>) = (row.get(code), row.get(code + 1));
            code.zip(kept).map(|(code, kept)| cipher.decrypt_key(code, kept)).transpose()
        };
        let is_damaged = || damaged("a forgotten turn");
        let names = TurnNames {
            session: row.get(1),
            words: key(2)?.ok_or_else(is_damaged)?,
            record: key(4)?,
            answer: key(6)?,
            nth: row.get(8),
        };
        let body = cipher.open(Body::Hidden(speaker, row.get(9)), row.get(10))?;
        let hidden = HiddenTurn::from_bytes(&body).ok_or_else(is_damaged)?;
        let id = hidden.id.clone();
        let newer = hidden.superseded_by.clone().map(|newer| (id.clone(), newer));
        let older = hidden.supersedes.clone().map(|older| (older, id.clone()));
        Ok(RestoredTurn {
            links: newer.into_iter().chain(older).collect(),
            names: StoredNames::new(cipher, &id, &names),
            turn: hidden.turn(&names),
        })
    }
}

/// Links a superseded turn with the one that supersedes it, if both are stored.
async fn link(
    client: &Client,
    cipher: &Cipher,
    speaker: &str,
    older: &RecordId,
    newer: &RecordId,
) -> Result<(), Error> {
    for (column, row, other) in [("superseded_by", older, newer), ("supersedes", newer, older)] {
        let key = |id: &RecordId| cipher.hash_name(Name::Turn, id.as_str());
        let sql = format!(
            "UPDATE hob.memory_turns SET {column} = $3 WHERE speaker = $1 AND id_key = $2
             AND EXISTS (SELECT 1 FROM hob.memory_turns WHERE speaker = $1 AND id_key = $4)"
        );
        let name = cipher.encrypt_id(other);
        ask(client, &sql, &[&speaker, &key(row), &name, &key(other)]).await?;
    }
    Ok(())
}

/// Adds a link to what is kept of a hidden turn.
async fn note_link(
    client: &Client,
    cipher: &Cipher,
    speaker: &str,
    id: &RecordId,
    (older, newer): (&RecordId, &RecordId),
) -> Result<(), Error> {
    let key = cipher.hash_name(Name::Turn, id.as_str());
    let sql = "SELECT id, body FROM hob.memory_forgotten
         WHERE speaker = $1 AND turn = $2 AND body IS NOT NULL";
    let rows = ask(client, sql, &[&speaker, &key]).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let body = cipher.open(Body::Hidden(speaker, &key), row.get(1)).ok();
    if let Some(mut hidden) = body.and_then(|body| HiddenTurn::from_bytes(&body)) {
        hidden.link(older, newer);
        let body = cipher.seal(Body::Hidden(speaker, &key), &hidden.to_bytes());
        let sql = "UPDATE hob.memory_forgotten SET body = $2 WHERE id = $1";
        ask(client, sql, &[&row.get::<_, i64>(0), &body]).await?;
    }
    Ok(())
}
