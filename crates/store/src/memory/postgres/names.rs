//! The names of turns in PostgreSQL: keyed hashes, by which equal names are recognised and nothing
//! else is learnt. The rows that share a name with a batch of turns are indexed by them.

use std::collections::HashMap;

use hob_domain::StoreError;
use hob_domain::memory::{NewTurn, RecordId, TurnKey};

use super::cipher::{Cipher, Name};
use crate::memory::identity::{self, Claim, ExistingTurn, TurnNames};

/// Names as the database has them.
pub(super) type HashedNames = TurnNames<Vec<u8>, Vec<u8>>;

/// Everything under which a turn is stored.
pub(super) struct StoredNames {
    /// The record id, encrypted.
    pub(super) id: Vec<u8>,
    /// The record id, hashed.
    pub(super) id_key: Vec<u8>,
    pub(super) hashed: HashedNames,
    pub(super) sealed: SealedNames,
}

/// The digests behind hashed names, encrypted: a migration to another store needs them.
pub(super) struct SealedNames {
    pub(super) words: Vec<u8>,
    pub(super) record: Option<Vec<u8>>,
    pub(super) answer: Option<Vec<u8>>,
}

impl StoredNames {
    pub(super) fn of(cipher: &Cipher, turn: &NewTurn) -> StoredNames {
        let session = cipher.hash_name(Name::Session, &turn.session);
        StoredNames::new(cipher, &turn.record_id(), &TurnNames::of(turn, session))
    }

    pub(super) fn new(
        cipher: &Cipher,
        id: &RecordId,
        names: &TurnNames<TurnKey, Vec<u8>>,
    ) -> StoredNames {
        let TurnNames { session, words, record, answer, nth } = names;
        StoredNames {
            id: cipher.encrypt_id(id),
            id_key: cipher.hash_name(Name::Turn, id.as_str()),
            hashed: TurnNames {
                session: session.clone(),
                words: cipher.hash_key(words),
                record: record.as_ref().map(|key| cipher.hash_key(key)),
                answer: answer.as_ref().map(|key| cipher.hash_key(key)),
                nth: *nth,
            },
            sealed: SealedNames {
                words: cipher.encrypt_key(words),
                record: record.as_ref().map(|key| cipher.encrypt_key(key)),
                answer: answer.as_ref().map(|key| cipher.encrypt_key(key)),
            },
        }
    }
}

/// A stored turn or a forgotten one, with the columns that a claim may change.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExistingRow {
    pub(super) turn: ExistingTurn<Vec<u8>, Vec<u8>>,
    /// The encrypted record id.
    pub(super) id: Vec<u8>,
    /// The encrypted digest of a record that came with this batch.
    pub(super) sealed_record: Option<Vec<u8>>,
    pub(super) ts: i64,
    pub(super) client: String,
    /// Whether a turn of this batch has claimed a name for the row.
    pub(super) is_claimed: bool,
}

/// Rows indexed by their names.
#[derive(Default)]
pub(super) struct ExistingRows {
    pub(super) all: Vec<ExistingRow>,
    by_record: HashMap<Vec<u8>, usize>,
    by_answer: HashMap<Vec<u8>, Vec<usize>>,
    by_words: HashMap<(Vec<u8>, Vec<u8>), Vec<usize>>,
}

impl ExistingRows {
    /// Adds a row and returns its place.
    pub(super) fn add(&mut self, row: ExistingRow) -> usize {
        let place = self.all.len();
        let names = &row.turn.names;
        if let Some(record) = &names.record {
            self.by_record.entry(record.clone()).or_insert(place);
        }
        if let Some(answer) = &names.answer {
            self.by_answer.entry(answer.clone()).or_default().push(place);
        }
        let words = (names.session.clone(), names.words.clone());
        self.by_words.entry(words).or_default().push(place);
        self.all.push(row);
        place
    }

    /// Returns whether a row has the id or the record of these names.
    pub(super) fn has(&self, names: &StoredNames) -> bool {
        let record = names.hashed.record.as_ref();
        record.is_some_and(|record| self.by_record.contains_key(record))
            || self.all.iter().any(|row| row.id == names.id)
    }

    /// Recognises a captured turn and applies its claim. Returns the encrypted id of the row that
    /// it is.
    pub(super) fn recognise(&mut self, names: &StoredNames, turn: &NewTurn) -> Option<&[u8]> {
        let related = self.related(&names.hashed);
        let rows = related.iter().map(|place| &self.all[*place].turn);
        let found = identity::recognise(&names.hashed, rows)?;
        let place = related[found.row];
        let row = &mut self.all[place];
        match found.claim {
            None => {}
            Some(Claim::Record) => {
                let record = names.hashed.record.clone();
                self.by_record.extend(record.clone().map(|record| (record, place)));
                row.turn.names.record = record;
                row.sealed_record = names.sealed.record.clone();
                row.ts = turn.ts.as_microsecond();
                row.turn.at = turn.at.as_microsecond();
                row.client = turn.client.clone();
            }
            Some(Claim::Nth) => row.turn.names.nth = names.hashed.nth,
        }
        row.is_claimed |= found.claim.is_some();
        Some(&row.id)
    }

    /// Returns the answer's place that a new turn is stored with; see [`identity::free_answer`].
    pub(super) fn free_answer(&self, names: &HashedNames) -> Option<Vec<u8>> {
        let related = self.related(names);
        let rows = related.iter().map(|place| &self.all[*place].turn);
        identity::free_answer(names, rows).cloned()
    }

    /// The places of all rows that share a name.
    fn related(&self, names: &HashedNames) -> Vec<usize> {
        let by_record = names.record.as_ref().and_then(|record| self.by_record.get(record));
        if let Some(place) = by_record {
            // No other row can be the turn.
            return vec![*place];
        }
        let by_answer = names.answer.as_ref().and_then(|answer| self.by_answer.get(answer));
        let by_words = self.by_words.get(&(names.session.clone(), names.words.clone()));
        by_answer.into_iter().chain(by_words).flatten().copied().collect()
    }
}

/// The outcome of storing a captured turn, with its encrypted record id.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CaptureOutcome {
    Inserted(Vec<u8>),
    Duplicate(Vec<u8>),
    /// The turn was forgotten once, and is not stored again.
    Forgotten,
}

/// Decrypts a record id.
pub(super) fn record_id(cipher: &Cipher, stored: &[u8]) -> Result<RecordId, StoreError> {
    Ok(RecordId::new(cipher.decrypt_name(Name::Turn, stored)?))
}
