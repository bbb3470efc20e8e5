//! Which stored turn a captured turn is.
//!
//! A turn may be captured several times: by a hook when it is said, from the transcript, by an
//! import. Each of these knows it by other names (see [`Identity`]). Both stores read the rows that
//! share a name with a captured turn, and [`recognise`] decides which of them it is, if any.
//! Nothing here reads or writes.
//!
//! A name that a row does not have yet is claimed for it. Then the row is found by this name as
//! well:
//!
//! - A record claims an answer that a hook has stored by its place, or a turn that was stored by
//!   its number.
//! - A number claims a turn that was stored as a record.

use hob_domain::memory::{Identity, NewTurn, TurnKey};

/// The names of a turn. `N` is a digest as the store writes it, `S` its reference to a session.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TurnNames<N, S> {
    pub(super) session: S,
    /// The words of the turn.
    pub(super) words: N,
    /// The record of a transcript.
    pub(super) record: Option<N>,
    /// The place of an answer: which prompt it answers.
    pub(super) answer: Option<N>,
    /// The number of the turn among those of the session with the same words.
    pub(super) nth: Option<i64>,
}

impl<S> TurnNames<TurnKey, S> {
    /// The names under which a turn was captured.
    pub(super) fn of(turn: &NewTurn, session: S) -> TurnNames<TurnKey, S> {
        let (record, answer, nth) = match turn.identity {
            Identity::Record { key, answer } => (Some(key), answer, None),
            Identity::Answer(place) => (None, Some(place), None),
            Identity::Nth(n) => (None, None, Some(i64::from(n))),
        };
        TurnNames { session, words: turn.words, record, answer, nth }
    }
}

/// A row that shares a name with a captured turn: a stored turn, or one that was forgotten.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExistingTurn<N, S> {
    /// The turn's `seq`, or the number of the row that keeps the names of a forgotten turn.
    pub(super) number: i64,
    /// The place of the turn in its session; the same for all forgotten turns.
    pub(super) at: i64,
    pub(super) names: TurnNames<N, S>,
}

/// A captured turn that is stored already, or was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recognised {
    /// The place of the row among those given.
    pub(super) row: usize,
    /// The name that the row gets by this.
    pub(super) claim: Option<Claim>,
}

/// A name that a row did not have before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// The record. It also knows better when the turn was said, and in which program.
    Record,
    /// The number.
    Nth,
}

/// Decides which of the rows a captured turn is. `None` is a new turn.
///
/// The rows must include every row of the same principal that has its record or its answer's place,
/// and every row of the same session that has its words. Other rows do no harm.
pub(super) fn recognise<'r, N, S>(
    captured: &TurnNames<N, S>,
    rows: impl Iterator<Item = &'r ExistingTurn<N, S>> + Clone,
) -> Option<Recognised>
where
    N: Eq + 'r,
    S: Eq + 'r,
{
    // Of several the earliest, so that repeated words are matched in the order they were said.
    let earliest = |accepts: &dyn Fn(&TurnNames<N, S>) -> bool| {
        let those = rows.clone().enumerate().filter(|(_, row)| accepts(&row.names));
        those.min_by_key(|(_, row)| (row.at, row.number)).map(|(place, _)| place)
    };
    let has_words =
        |row: &TurnNames<N, S>| row.session == captured.session && row.words == captured.words;
    let known = |row| Some(Recognised { row, claim: None });
    let claimed = |row, claim| Some(Recognised { row, claim: Some(claim) });
    match (&captured.record, &captured.answer, captured.nth) {
        (Some(record), answer, _) => {
            if let Some(row) = earliest(&|row| row.record.as_ref() == Some(record)) {
                return known(row);
            }
            // A hook may have stored the turn before its record came.
            let by_answer = answer.as_ref().and_then(|answer| {
                earliest(&|row| row.record.is_none() && row.answer.as_ref() == Some(answer))
            });
            let row = by_answer.or_else(|| {
                earliest(&|row| row.record.is_none() && row.nth.is_some() && has_words(row))
            })?;
            claimed(row, Claim::Record)
        }
        (None, Some(answer), _) => known(earliest(&|row| row.answer.as_ref() == Some(answer))?),
        (None, None, Some(n)) => {
            if let Some(row) = earliest(&|row| row.nth == Some(n) && has_words(row)) {
                return known(row);
            }
            let row = earliest(&|row| row.record.is_some() && row.nth.is_none() && has_words(row))?;
            claimed(row, Claim::Nth)
        }
        (None, None, None) => None,
    }
}

/// Returns the answer's place that a new turn is stored with. Two records may claim one place, such
/// as two equal blocks of an answer; the first one keeps it.
pub(super) fn free_answer<'r, N, S>(
    captured: &TurnNames<N, S>,
    mut rows: impl Iterator<Item = &'r ExistingTurn<N, S>>,
) -> Option<&N>
where
    N: Eq + 'r,
    S: 'r,
{
    let answer = captured.answer.as_ref()?;
    let is_taken = rows.any(|row| row.names.answer.as_ref() == Some(answer));
    Some(answer).filter(|_| !is_taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Names = TurnNames<&'static str, u32>;
    type Row = ExistingTurn<&'static str, u32>;

    fn names(
        record: Option<&'static str>,
        answer: Option<&'static str>,
        nth: Option<i64>,
    ) -> Names {
        TurnNames { session: 1, words: "yes", record, answer, nth }
    }

    fn row(number: i64, at: i64, names: Names) -> Row {
        ExistingTurn { number, at, names }
    }

    fn found(captured: &Names, rows: &[Row]) -> Option<(i64, Option<Claim>)> {
        recognise(captured, rows.iter()).map(|found| (rows[found.row].number, found.claim))
    }

    #[test]
    fn record_is_known_by_its_id_wherever_it_stands() {
        let rows = [row(7, 1, Names { session: 2, words: "no", ..names(Some("r"), None, None) })];
        assert_eq!(found(&names(Some("r"), None, None), &rows), Some((7, None)));
        assert_eq!(found(&names(Some("other"), None, None), &rows), None);
    }

    #[test]
    fn record_claims_the_answer_that_a_hook_has_stored() {
        let rows = [row(3, 9, names(None, Some("a"), None)), row(4, 1, names(None, None, Some(1)))];
        let captured = names(Some("r"), Some("a"), None);
        assert_eq!(found(&captured, &rows), Some((3, Some(Claim::Record))));
        // An answer that has its record already is not claimed again; the number is the next best.
        let rows = [row(3, 9, names(Some("q"), Some("a"), None)), rows[1].clone()];
        assert_eq!(found(&captured, &rows), Some((4, Some(Claim::Record))));
    }

    #[test]
    fn record_claims_the_earliest_numbered_turn_with_its_words_in_its_session() {
        let rows = [
            row(1, 50, names(None, None, Some(2))),
            row(2, 40, names(None, None, Some(1))),
            row(3, 30, names(Some("q"), None, Some(3))),
            row(4, 20, names(None, Some("a"), None)),
            row(5, 10, Names { session: 2, ..names(None, None, Some(1)) }),
            row(6, 10, Names { words: "no", ..names(None, None, Some(1)) }),
        ];
        assert_eq!(found(&names(Some("r"), None, None), &rows), Some((2, Some(Claim::Record))));
        assert_eq!(found(&names(Some("r"), None, None), &rows[2..]), None);
    }

    #[test]
    fn answer_is_known_by_its_place_alone() {
        let rows = [row(3, 9, names(Some("r"), Some("a"), None))];
        assert_eq!(found(&names(None, Some("a"), None), &rows), Some((3, None)));
        assert_eq!(found(&names(None, Some("b"), None), &rows), None);
    }

    #[test]
    fn number_is_known_or_claims_the_earliest_record_without_one() {
        let rows = [
            row(1, 30, names(Some("p"), None, None)),
            row(2, 20, names(Some("q"), None, None)),
            row(3, 10, names(Some("r"), None, Some(1))),
        ];
        assert_eq!(found(&names(None, None, Some(1)), &rows), Some((3, None)));
        assert_eq!(found(&names(None, None, Some(2)), &rows), Some((2, Some(Claim::Nth))));
        assert_eq!(found(&names(None, None, Some(2)), &rows[2..]), None);
    }

    #[test]
    fn equal_times_are_ordered_by_number() {
        let rows = [row(9, 5, names(None, None, Some(1))), row(8, 5, names(None, None, Some(1)))];
        assert_eq!(found(&names(None, None, Some(1)), &rows), Some((8, None)));
    }

    #[test]
    fn answers_place_is_kept_by_the_first_that_has_it() {
        let rows = [row(3, 9, names(Some("q"), Some("a"), None))];
        let captured = names(Some("r"), Some("a"), None);
        assert_eq!(free_answer(&captured, rows.iter()), None);
        assert_eq!(free_answer(&captured, [].iter()), Some(&"a"));
        assert_eq!(free_answer(&names(Some("r"), None, None), [].iter()), None);
    }
}
