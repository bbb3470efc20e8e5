//! What a batch of turns changes, written in a few statements however many turns there are.

use std::collections::BTreeMap;

use hob_domain::memory::ImportMark;
use hob_index::terms;
use tokio_postgres::Error;

use super::cipher::{Bits, Body, Cipher, Name};
use super::names::Known;
use super::postings::{Recent, counts};
use super::rows::body;
use super::store_turns::{Batch, Inserted, Numbers, Session};
use crate::postgres::connections::{Client, Values};
use crate::postgres::text::put;

impl Batch<'_> {
    /// Writes what has changed. `before` are the numbers that were the last ones until now.
    pub(super) async fn write(&self, client: &Client, before: Numbers) -> Result<(), Error> {
        self.write_claims(client, before).await?;
        if self.inserted.is_empty() {
            return Ok(());
        }
        let numbers = client
            .prepare_cached(
                "UPDATE hob.memory_state SET last_seq = $1, last_project = $2, last_session = $3
                 WHERE id = 1",
            )
            .await?;
        let last = self.numbers;
        client.execute(&numbers, &[&last.seq, &last.project, &last.session]).await?;
        self.write_places(client).await?;
        let mut recent = Recent::default();
        self.write_turns(client, &mut recent).await?;
        recent.write(client).await
    }

    /// Projects and sessions.
    async fn write_places(&self, client: &Client) -> Result<(), Error> {
        let new: Vec<(&String, i64)> = self
            .projects
            .iter()
            .filter(|(_, project)| project.is_new)
            .map(|(root, project)| (root, project.id))
            .collect();
        if !new.is_empty() {
            let ids: Vec<i64> = new.iter().map(|(_, id)| *id).collect();
            let key = |(root, _): &(&String, i64)| self.cipher.name_key(Name::Project, root);
            let name = |(root, _): &(&String, i64)| self.cipher.name(Name::Project, root);
            let keys: Vec<Vec<u8>> = new.iter().map(key).collect();
            let names: Vec<Vec<u8>> = new.iter().map(name).collect();
            let sql = "INSERT INTO hob.memory_projects
                     (id, turns, length, sessions, speaker, root_key, root)
                 SELECT id, 0, 0, 0, $1, key, name
                 FROM unnest($2::bigint[], $3::bytea[], $4::bytea[]) u (id, key, name)";
            let statement = client.prepare_cached(sql).await?;
            client.execute(&statement, &[&self.speaker, &ids, &keys, &names]).await?;
        }
        add_sums(client, &self.sums).await?;
        let (new, old): (Vec<_>, Vec<_>) = self
            .sessions
            .iter()
            .filter(|(_, session)| session.is_new || session.changed)
            .partition(|(_, session)| session.is_new);
        let numbers = |sessions: &[(&Vec<u8>, &Session)], of: fn(&Session) -> i64| -> Vec<i64> {
            sessions.iter().map(|(_, session)| of(session)).collect()
        };
        if !new.is_empty() {
            let keys: Vec<&Vec<u8>> = new.iter().map(|(key, _)| *key).collect();
            let names: Vec<&Vec<u8>> = new.iter().map(|(_, session)| &session.name).collect();
            let clients: Vec<_> = new.iter().map(|(_, session)| put(&session.client)).collect();
            let notes: Vec<bool> = new.iter().map(|(_, session)| session.note).collect();
            let sql = "INSERT INTO hob.memory_sessions
                     (id, project, started, ended, turns, length, note, speaker, client, name_key, name)
                 SELECT id, project, started, ended, turns, length, note, $1, client, key, name
                 FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                         $7::bigint[], $8::boolean[], $9::text[], $10::bytea[], $11::bytea[])
                     u (id, project, started, ended, turns, length, note, client, key, name)";
            let statement = client.prepare_cached(sql).await?;
            client
                .execute(
                    &statement,
                    &[
                        &self.speaker,
                        &numbers(&new, |session| session.id),
                        &numbers(&new, |session| session.project),
                        &numbers(&new, |session| session.started),
                        &numbers(&new, |session| session.ended),
                        &numbers(&new, |session| session.turns),
                        &numbers(&new, |session| session.length),
                        &notes,
                        &clients,
                        &keys,
                        &names,
                    ],
                )
                .await?;
        }
        if !old.is_empty() {
            let sql = "UPDATE hob.memory_sessions s SET project = u.project, started = u.started,
                     ended = u.ended, turns = s.turns + u.turns, length = s.length + u.length
                 FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                         $6::bigint[])
                     u (id, project, started, ended, turns, length) WHERE s.id = u.id";
            let statement = client.prepare_cached(sql).await?;
            client
                .execute(
                    &statement,
                    &[
                        &numbers(&old, |session| session.id),
                        &numbers(&old, |session| session.project),
                        &numbers(&old, |session| session.started),
                        &numbers(&old, |session| session.ended),
                        &numbers(&old, |session| session.turns),
                        &numbers(&old, |session| session.length),
                    ],
                )
                .await?;
        }
        Ok(())
    }

    async fn write_turns(&self, client: &Client, recent: &mut Recent) -> Result<(), Error> {
        let all = &self.inserted;
        let numbers = |of: fn(&Inserted<'_>) -> i64| -> Vec<i64> { all.iter().map(of).collect() };
        let (seqs, sessions, projects) =
            (numbers(|one| one.seq), numbers(|one| one.session), numbers(|one| one.project));
        // Another one of this batch may have brought a name since.
        let known: Vec<&Known> = all.iter().map(|one| &self.turns.all[one.place]).collect();
        let ts: Vec<i64> = known.iter().map(|known| known.ts).collect();
        let at: Vec<i64> = known.iter().map(|known| known.at).collect();
        let nths: Vec<Option<i64>> = known.iter().map(|known| known.nth).collect();
        let keys: Vec<Option<&[u8]>> = known.iter().map(|known| known.key.as_deref()).collect();
        let answers: Vec<Option<&[u8]>> =
            known.iter().map(|known| known.answer.as_deref()).collect();
        let keys_kept: Vec<Option<&[u8]>> =
            known.iter().map(|known| known.key_kept.as_deref()).collect();
        let answer_kept = |(one, known): (&Inserted<'_>, &&Known)| {
            known.answer.is_some().then(|| one.names.kept.answer.clone()).flatten()
        };
        let answers_kept: Vec<Option<Vec<u8>>> = all.iter().zip(&known).map(answer_kept).collect();
        let words_kept: Vec<&[u8]> = all.iter().map(|one| &*one.names.kept.words).collect();
        let clients: Vec<_> = known.iter().map(|known| put(&known.client)).collect();
        let ids: Vec<&[u8]> = all.iter().map(|one| &*one.names.id).collect();
        let id_keys: Vec<&[u8]> = all.iter().map(|one| &*one.names.id_key).collect();
        let words: Vec<&[u8]> = all.iter().map(|one| &*one.names.words).collect();
        let chars: Vec<i32> = all.iter().map(|one| one.turn.text.chars().count() as i32).collect();
        let rules: Vec<i32> = all.iter().map(|one| one.turn.rules as i32).collect();
        let roles: Vec<&str> = all.iter().map(|one| one.turn.role.as_str()).collect();
        let tiers: Vec<&str> = all.iter().map(|one| one.turn.tier.as_str()).collect();
        let sources: Vec<_> = all.iter().map(|one| put(one.turn.source.as_str())).collect();
        let sealed: Vec<Option<&[u8]>> = all.iter().map(|one| one.turn.sealed.as_deref()).collect();
        let counted: Vec<_> = all.iter().map(|one| counts(one.turn)).collect();
        let lengths: Vec<i32> = counted.iter().map(|counts| terms::length(counts) as i32).collect();
        let terms: Vec<Vec<u8>> = all
            .iter()
            .zip(&counted)
            .map(|(one, counts)| recent.add(self.cipher, one.project, one.session, one.seq, counts))
            .collect();
        let body = |one: &Inserted<'_>| {
            let (turn, of) = (one.turn, Body::Turn(self.speaker, one.seq));
            let plain = body(&turn.place.worktree, turn.cue.as_deref(), &turn.text);
            self.cipher.seal(of, &plain)
        };
        let bodies: Vec<Vec<u8>> = all.iter().map(body).collect();
        let sql = "INSERT INTO hob.memory_turns (seq, session, project, ts, at, nth, chars, rules,
                 speaker, role, tier, client, source, id_key, id, key, answer, words, body, sealed,
                 terms, key_kept, answer_kept, words_kept)
             SELECT u.seq, u.session, u.project, u.ts, u.at, u.nth, u.chars, u.rules, $1, u.role,
                 u.tier, u.client, u.source, u.id_key, u.id, u.key, u.answer, u.words, u.body,
                 u.sealed, u.terms, u.key_kept, u.answer_kept, u.words_kept
             FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                 $7::bigint[], $8::integer[], $9::integer[], $10::text[], $11::text[], $12::text[],
                 $13::text[], $14::bytea[], $15::bytea[], $16::bytea[], $17::bytea[], $18::bytea[],
                 $19::bytea[], $20::bytea[], $21::bytea[], $22::bytea[], $23::bytea[], $24::bytea[])
                 u (seq, session, project, ts, at, nth, chars, rules, role, tier, client, source,
                 id_key, id, key, answer, words, body, sealed, terms, key_kept, answer_kept,
                 words_kept)";
        let values: Values<'_> = &[
            &self.speaker,
            &seqs,
            &sessions,
            &projects,
            &ts,
            &at,
            &nths,
            &chars,
            &rules,
            &roles,
            &tiers,
            &clients,
            &sources,
            &id_keys,
            &ids,
            &keys,
            &answers,
            &words,
            &bodies,
            &sealed,
            &terms,
            &keys_kept,
            &answers_kept,
            &words_kept,
        ];
        client.execute(&client.prepare_cached(sql).await?, values).await?;
        let sql = "INSERT INTO hob.memory_standing (seq, session, project, ts, at, length, speaker)
             SELECT u.*, $1 FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                 $6::bigint[], $7::integer[]) u";
        let values: Values<'_> = &[&self.speaker, &seqs, &sessions, &projects, &ts, &at, &lengths];
        client.execute(&client.prepare_cached(sql).await?, values).await?;
        let vectors: Vec<&[i8]> = all.iter().map(|one| &*one.turn.vector).collect();
        let codes: Vec<Option<Bits>> =
            vectors.iter().map(|vector| self.cipher.table_code(vector)).collect();
        let seal = |(seq, vector): (&i64, &&[i8])| {
            self.cipher.seal_vector(Body::Vector(self.speaker, *seq), vector)
        };
        let vectors: Vec<Vec<u8>> = seqs.iter().zip(&vectors).map(seal).collect();
        let sql =
            "INSERT INTO hob.memory_vectors (seq, session, project, ts, code, vector, speaker)
             SELECT u.seq, u.session, u.project, u.ts, u.code::bit(256), u.vector, $1
             FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::varbit[],
                 $7::bytea[]) u (seq, session, project, ts, code, vector)";
        let values: Values<'_> =
            &[&self.speaker, &seqs, &sessions, &projects, &ts, &codes, &vectors];
        client.execute(&client.prepare_cached(sql).await?, values).await?;
        Ok(())
    }

    /// Names that turns of before have got, and that forgotten ones have.
    async fn write_claims(&self, client: &Client, before: Numbers) -> Result<(), Error> {
        let claimed: Vec<&Known> =
            self.turns.all.iter().filter(|row| row.changed && row.number <= before.seq).collect();
        if !claimed.is_empty() {
            let seqs: Vec<i64> = claimed.iter().map(|row| row.number).collect();
            let keys: Vec<Option<&[u8]>> = claimed.iter().map(|row| row.key.as_deref()).collect();
            let nths: Vec<Option<i64>> = claimed.iter().map(|row| row.nth).collect();
            let ts: Vec<i64> = claimed.iter().map(|row| row.ts).collect();
            let at: Vec<i64> = claimed.iter().map(|row| row.at).collect();
            let clients: Vec<_> = claimed.iter().map(|row| put(&row.client)).collect();
            let kept: Vec<Option<&[u8]>> =
                claimed.iter().map(|row| row.key_kept.as_deref()).collect();
            let sql =
                "UPDATE hob.memory_turns t SET key = u.key, nth = u.nth, ts = u.ts, at = u.at,
                     client = u.client, key_kept = coalesce(u.kept, t.key_kept)
                 FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[],
                     $6::text[], $7::bytea[]) u (seq, key, nth, ts, at, client, kept)
                 WHERE t.seq = u.seq";
            let statement = client.prepare_cached(sql).await?;
            client.execute(&statement, &[&seqs, &keys, &nths, &ts, &at, &clients, &kept]).await?;
            let from = "FROM unnest($1::bigint[], $2::bigint[]) u (seq, ts)
                 WHERE t.seq = u.seq AND t.ts <> u.ts";
            for table in ["hob.memory_vectors", "hob.memory_model_vectors"] {
                let sql = format!("UPDATE {table} t SET ts = u.ts {from}");
                client.execute(&client.prepare_cached(&sql).await?, &[&seqs, &ts]).await?;
            }
            let sql = "UPDATE hob.memory_standing t SET ts = u.ts, at = u.at
                 FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) u (seq, ts, at)
                 WHERE t.seq = u.seq AND (t.ts, t.at) <> (u.ts, u.at)";
            client.execute(&client.prepare_cached(sql).await?, &[&seqs, &ts, &at]).await?;
        }
        let forgotten: Vec<&Known> = self.forgotten.all.iter().filter(|row| row.changed).collect();
        if !forgotten.is_empty() {
            let ids: Vec<i64> = forgotten.iter().map(|row| row.number).collect();
            let keys: Vec<Option<&[u8]>> = forgotten.iter().map(|row| row.key.as_deref()).collect();
            let nths: Vec<Option<i64>> = forgotten.iter().map(|row| row.nth).collect();
            let kept: Vec<Option<&[u8]>> =
                forgotten.iter().map(|row| row.key_kept.as_deref()).collect();
            let sql = "UPDATE hob.memory_forgotten f SET key = u.key, nth = u.nth,
                     key_kept = coalesce(u.kept, f.key_kept)
                 FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bytea[])
                     u (id, key, nth, kept)
                 WHERE f.id = u.id";
            client
                .execute(&client.prepare_cached(sql).await?, &[&ids, &keys, &nths, &kept])
                .await?;
        }
        Ok(())
    }
}

/// Adds to the sums of projects: turns, terms and sessions.
pub(super) async fn add_sums(client: &Client, sums: &BTreeMap<i64, [i64; 3]>) -> Result<(), Error> {
    let ids: Vec<i64> = sums.keys().copied().collect();
    let column = |place: usize| -> Vec<i64> { sums.values().map(|sum| sum[place]).collect() };
    let sql = "UPDATE hob.memory_projects p SET turns = p.turns + u.turns,
             length = p.length + u.length, sessions = p.sessions + u.sessions
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
             u (id, turns, length, sessions) WHERE p.id = u.id";
    let values: Values<'_> = &[&ids, &column(0), &column(1), &column(2)];
    client.execute(&client.prepare_cached(sql).await?, values).await?;
    Ok(())
}

pub(super) async fn save_marks(
    client: &Client,
    cipher: &Cipher,
    marks: &[ImportMark],
) -> Result<(), Error> {
    if marks.is_empty() {
        return Ok(());
    }
    // Of two marks of one path the last counts.
    let last: BTreeMap<Vec<u8>, &ImportMark> =
        marks.iter().map(|mark| (cipher.key(&mark.path), mark)).collect();
    let paths: Vec<&Vec<u8>> = last.keys().collect();
    let kept: Vec<Vec<u8>> = last.values().map(|mark| cipher.keep(&mark.path)).collect();
    let sizes: Vec<i64> = last.values().map(|mark| mark.size as i64).collect();
    let modified: Vec<i64> = last.values().map(|mark| mark.modified).collect();
    let sql = "INSERT INTO hob.memory_imports (path, size, modified, path_kept)
         SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bytea[])
         ON CONFLICT (path) DO UPDATE SET size = excluded.size, modified = excluded.modified,
             path_kept = excluded.path_kept";
    client.execute(&client.prepare_cached(sql).await?, &[&paths, &sizes, &modified, &kept]).await?;
    Ok(())
}
