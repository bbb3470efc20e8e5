//! Which of the turns that come are known, by any of their names. The same as SQLite does row by row, for a whole batch
//! in one place: the rows that could matter are read before, and what was found out is written after.

use std::collections::HashMap;

use hob_domain::memory::{Identity, NewTurn, RecordId, TurnKey};

use super::cipher::{Cipher, Name};

/// A stored turn, or one that was forgotten, as far as it matters here.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Known {
    /// The number of a turn, or that of a row of what is forgotten.
    pub(super) number: i64,
    pub(super) id: Vec<u8>,
    /// The code of its session's name.
    pub(super) session: Vec<u8>,
    pub(super) words: Vec<u8>,
    pub(super) key: Option<Vec<u8>>,
    /// What is kept of a key that came with this batch.
    pub(super) key_kept: Option<Vec<u8>>,
    pub(super) answer: Option<Vec<u8>>,
    pub(super) nth: Option<i64>,
    pub(super) ts: i64,
    pub(super) at: i64,
    pub(super) client: String,
    /// Whether it has a name more than it had.
    pub(super) changed: bool,
}

/// The names a turn comes under, as they are stored.
pub(super) struct Names {
    pub(super) id: Vec<u8>,
    pub(super) id_key: Vec<u8>,
    pub(super) session: Vec<u8>,
    pub(super) words: Vec<u8>,
    pub(super) key: Option<Vec<u8>>,
    pub(super) answer: Option<Vec<u8>>,
    pub(super) nth: Option<i64>,
    pub(super) kept: Kept,
}

/// The digests behind these names, as they are kept.
pub(super) struct Kept {
    pub(super) words: Vec<u8>,
    pub(super) key: Option<Vec<u8>>,
    pub(super) answer: Option<Vec<u8>>,
}

impl Names {
    pub(super) fn of(cipher: &Cipher, turn: &NewTurn) -> Names {
        let (key, answer, nth, id) = match turn.identity {
            Identity::Record { key, answer } => (Some(key), answer, None, key.record_id()),
            Identity::Answer(place) => (None, Some(place), None, place.record_id()),
            Identity::Nth(n) => {
                let words = turn.words.to_hex();
                let id = TurnKey::of(&["nth", &turn.session, &words, &n.to_string()]).record_id();
                (None, None, Some(i64::from(n)), id)
            }
        };
        Names {
            session: cipher.name_key(Name::Session, &turn.session),
            ..Names::known_as(cipher, &id, &turn.words, key.as_ref(), answer.as_ref(), nth)
        }
    }

    /// The same of a turn that is known by these, without the session's.
    pub(super) fn known_as(
        cipher: &Cipher,
        id: &RecordId,
        words: &TurnKey,
        key: Option<&TurnKey>,
        answer: Option<&TurnKey>,
        nth: Option<i64>,
    ) -> Names {
        Names {
            id_key: cipher.name_key(Name::Turn, id.as_str()),
            id: cipher.record_name(id),
            session: Vec::new(),
            words: cipher.key(words),
            key: key.map(|key| cipher.key(key)),
            answer: answer.map(|key| cipher.key(key)),
            nth,
            kept: Kept {
                words: cipher.keep(words),
                key: key.map(|key| cipher.keep(key)),
                answer: answer.map(|key| cipher.keep(key)),
            },
        }
    }
}

/// What became of one turn.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    /// Its name as it is stored.
    Inserted(Vec<u8>),
    Duplicate(Vec<u8>),
    /// It was forgotten once.
    Forgotten,
}

/// Rows by their names.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) all: Vec<Known>,
    by_key: HashMap<Vec<u8>, usize>,
    by_answer: HashMap<Vec<u8>, Vec<usize>>,
    by_words: HashMap<(Vec<u8>, Vec<u8>), Vec<usize>>,
}

impl Rows {
    pub(super) fn add(&mut self, row: Known) {
        let place = self.all.len();
        if let Some(key) = &row.key {
            self.by_key.entry(key.clone()).or_insert(place);
        }
        if let Some(answer) = &row.answer {
            self.by_answer.entry(answer.clone()).or_default().push(place);
        }
        let words = (row.session.clone(), row.words.clone());
        self.by_words.entry(words).or_default().push(place);
        self.all.push(row);
    }

    /// Looks for a turn under the names it may be known by, and notes the name it came under.
    pub(super) fn known(&mut self, names: &Names, turn: &NewTurn) -> Option<Vec<u8>> {
        let place = match (&names.key, &names.answer, names.nth) {
            (Some(key), answer, _) => {
                if let Some(place) = self.by_key.get(key) {
                    return Some(self.all[*place].id.clone());
                }
                // The same turn may have come before its record did: by its place, or by its number.
                let unclaimed = answer
                    .as_ref()
                    .and_then(|answer| self.with_answer(answer, |row| row.key.is_none()))
                    .or_else(|| {
                        self.with_words(names, |row| row.key.is_none() && row.nth.is_some())
                    })?;
                self.by_key.insert(key.clone(), unclaimed);
                let row = &mut self.all[unclaimed];
                row.key = Some(key.clone());
                row.key_kept = names.kept.key.clone();
                // Its record knows better when, and in what, it was said.
                row.ts = turn.ts.as_microsecond();
                row.at = turn.at.as_microsecond();
                row.client = turn.client.clone();
                row.changed = true;
                unclaimed
            }
            (None, Some(answer), _) => self.with_answer(answer, |_| true)?,
            (None, None, Some(n)) => match self.with_words(names, |row| row.nth == Some(n)) {
                Some(place) => place,
                None => {
                    let unnumbered = |row: &Known| row.key.is_some() && row.nth.is_none();
                    let place = self.with_words(names, unnumbered)?;
                    let row = &mut self.all[place];
                    row.nth = Some(n);
                    row.changed = true;
                    place
                }
            },
            (None, None, None) => return None,
        };
        Some(self.all[place].id.clone())
    }

    /// Whether a place has its answer. The first of two records that claim one has it.
    pub(super) fn is_taken(&self, answer: &[u8]) -> bool {
        self.by_answer.contains_key(answer)
    }

    fn with_answer(&self, answer: &[u8], which: impl Fn(&Known) -> bool) -> Option<usize> {
        let places = self.by_answer.get(answer)?;
        places.iter().copied().find(|place| which(&self.all[*place]))
    }

    /// The first such turn of the session with these words.
    fn with_words(&self, names: &Names, which: impl Fn(&Known) -> bool) -> Option<usize> {
        let places = self.by_words.get(&(names.session.clone(), names.words.clone()))?;
        let such = places.iter().copied().filter(|place| which(&self.all[*place]));
        such.min_by_key(|place| (self.all[*place].at, self.all[*place].number))
    }
}

/// The id that a stored name stands for.
pub(super) fn record_id(
    cipher: &Cipher,
    stored: &[u8],
) -> Result<RecordId, hob_domain::StoreError> {
    Ok(RecordId::new(cipher.unnamed(Name::Turn, stored)?))
}
