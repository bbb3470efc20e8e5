use hob_domain::memory::{DocumentFrequency, SessionStatistics};
use proptest::prelude::*;

use super::*;
use crate::recall::period::periods;

fn candidate(seq: i64, session: i64, counts: &[(usize, u32)]) -> Candidate {
    Candidate {
        seq,
        session,
        previous: None,
        ts: Timestamp::from_second(seq * 86_400).unwrap(),
        length: 10,
        counts: counts
            .iter()
            .map(|(term, times)| TermCount { term: *term, times: *times })
            .collect(),
        vector: [0, 0].into(),
        model_vector: Vec::new(),
        in_scope: true,
    }
}

/// A hundred turns in ten sessions; the first term is common, the second rare, the third related to
/// the second.
fn proposal(candidates: Vec<Candidate>) -> CandidateSet {
    let mut sessions: Vec<i64> = candidates.iter().map(|candidate| candidate.session).collect();
    sessions.dedup();
    let context = |session: i64| {
        let of = candidates.iter().filter(|candidate| candidate.session == session);
        SessionStatistics {
            session,
            length: 100,
            counts: of.flat_map(|one| one.counts.clone()).collect(),
        }
    };
    CandidateSet {
        turns: 100,
        length: 1000,
        sessions: 10,
        document_frequencies: [(50, 8), (2, 2), (1, 1)]
            .map(|(turns, sessions)| DocumentFrequency { turns, sessions })
            .into(),
        session_statistics: sessions.into_iter().map(context).collect(),
        candidates,
    }
}

fn terms() -> Vec<QueryTerm> {
    let term = |(term, weight): (&str, f32)| QueryTerm { term: term.to_owned(), weight };
    [("common", 1.0), ("rare", 1.0), ("related", 0.3)].map(term).into()
}

fn order(proposal: &CandidateSet, vector: &[i8], periods: &[Period]) -> Vec<i64> {
    let terms = terms();
    let asked = Asked {
        terms: &terms,
        stands_for: &[Some(1)],
        known: &[true; 2],
        vector,
        finer: &[],
        periods,
        shown: 100,
    };
    rank(proposal, &asked).into_iter().map(|one| one.seq).collect()
}

#[test]
fn rare_terms_say_more_and_related_ones_less() {
    let all = vec![
        candidate(1, 1, &[(0, 1)]),
        candidate(2, 2, &[(1, 1)]),
        candidate(3, 3, &[(2, 1)]),
        candidate(4, 4, &[(0, 1), (1, 1)]),
    ];
    assert_eq!(order(&proposal(all), &[0, 0], &[]), [4, 2, 3, 1]);
}

#[test]
fn what_answers_a_match_is_lifted() {
    let mut all = vec![
        candidate(1, 1, &[(1, 1)]),
        candidate(2, 1, &[]),
        candidate(3, 1, &[]),
        candidate(4, 2, &[(0, 1)]),
    ];
    all[1].previous = Some(1);
    all[2].previous = Some(2);
    let proposal = proposal(all);
    assert_eq!(order(&proposal, &[0, 0], &[])[..3], [1, 2, 3]);
}

#[test]
fn vectors_times_and_newness_decide_between_equals() {
    let all: Vec<Candidate> = (1..=4).map(|seq| candidate(seq, seq, &[(1, 1)])).collect();
    assert_eq!(order(&proposal(all.clone()), &[0, 0], &[]), [4, 3, 2, 1]);
    let mut near = all.clone();
    near[1].vector = vec![9, 1].into();
    near[2].vector = vec![-9, 1].into();
    assert_eq!(order(&proposal(near), &[1, 0], &[])[0], 2);
    let asked = periods("on 4 January 1970", Timestamp::UNIX_EPOCH);
    assert_eq!(order(&proposal(all.clone()), &[0, 0], &asked)[0], 3);
    let mut outside = all;
    outside[3].in_scope = false;
    assert_eq!(order(&proposal(outside), &[0, 0], &[]), [3, 2, 1]);
    assert!(order(&CandidateSet::default(), &[0, 0], &[]).is_empty());
}

#[test]
fn longer_turns_are_preferred_up_to_a_length() {
    let mut all: Vec<Candidate> = (1..=3).map(|seq| candidate(seq, seq, &[])).collect();
    (all[0].length, all[1].length, all[2].length) = (40, 4, 400);
    assert_eq!(order(&proposal(all), &[0, 0], &[]), [3, 1, 2]);
}

#[test]
fn vectors_count_more_where_words_of_the_question_are_nowhere() {
    let mut all = vec![candidate(1, 1, &[(0, 1)]), candidate(2, 2, &[])];
    all[0].vector = vec![-9, 1].into();
    all[1].vector = vec![9, 1].into();
    let mut proposal = proposal(all);
    assert_eq!(order(&proposal, &[1, 0], &[])[0], 1);
    proposal.document_frequencies[1] = DocumentFrequency::default();
    assert_eq!(order(&proposal, &[1, 0], &[])[0], 2);
}

/// The order by the table's vectors and a model's.
fn order_by_both(proposal: &CandidateSet, vector: &[i8], finer: &[i8]) -> Vec<i64> {
    let terms = terms();
    let asked = Asked {
        terms: &terms,
        stands_for: &[Some(1)],
        known: &[true; 2],
        vector,
        finer,
        periods: &[],
        shown: 100,
    };
    rank(proposal, &asked).into_iter().map(|one| one.seq).collect()
}

#[test]
fn vectors_of_a_model_count_for_those_that_have_them() {
    // The table says one thing of the turns, the model another.
    let make = |seq: i64| {
        let mut one = candidate(seq, seq, &[(1, 1)]);
        one.vector = vec![60, seq as i8].into();
        one.model_vector = vec![60, 30 - seq as i8, 0];
        one
    };
    let all: Vec<Candidate> = (1..=20).map(make).collect();
    let by_table = order_by_both(&proposal(all.clone()), &[1, 0], &[]);
    assert_eq!((by_table[0], by_table[19]), (1, 20));
    let by_model = order_by_both(&proposal(all.clone()), &[1, 0], &[1, 0, 0]);
    assert_eq!((by_model[0], by_model[19]), (20, 1));
    // A question of another length is of another kind: it is as if there were none.
    assert_eq!(order_by_both(&proposal(all), &[1, 0], &[1, 0]), by_table);
}

#[test]
fn a_turn_that_has_no_vector_of_the_model_yet_is_judged_by_the_table() {
    // All are far but two: one is near by the model, one that the model has not seen by the table.
    let make = |seq: i64| {
        let mut one = candidate(seq, seq, &[(1, 1)]);
        one.vector = if seq == 7 { [90, 1].into() } else { [seq as i8, 90].into() };
        one.model_vector = match seq {
            3 => vec![90, 1, 0],
            seq if seq % 2 == 0 || seq > 30 => vec![seq as i8, 90, 0],
            _ => Vec::new(),
        };
        one
    };
    let all: Vec<Candidate> = (1..=40).map(make).collect();
    let mixed = order_by_both(&proposal(all.clone()), &[1, 0], &[1, 0, 0]);
    let mut first = mixed[..2].to_vec();
    first.sort_unstable();
    assert_eq!(first, [3, 7]);
    // To have no vector at all is neither good nor bad.
    let mut without = all;
    without[19].vector = Vec::new().into();
    without[19].model_vector = Vec::new();
    let mixed = order_by_both(&proposal(without), &[1, 0], &[1, 0, 0]);
    let place = mixed.iter().position(|seq| *seq == 20).unwrap();
    assert!((3..37).contains(&place), "{place}");
    // So few of the model say nothing about what is usual.
    let few: Vec<Candidate> = (1..=40)
        .map(|seq| {
            let mut one = make(seq);
            one.model_vector.truncate(if seq < 5 { 3 } else { 0 });
            one
        })
        .collect();
    assert_eq!(order_by_both(&proposal(few), &[1, 0], &[1, 0, 0])[0], 7);
}

proptest! {
    /// Whatever is proposed: each in scope has one place, scores are numbers from 0 to 1 in order,
    /// and the order in which candidates come decides nothing.
    #[test]
    fn every_proposal_has_one_order(
        drawn in proptest::collection::vec((1_i64..5, 0_usize..3, 1_u32..9, any::<bool>(), any::<i8>()), 0..30),
    ) {
        let make = |(place, (session, term, times, in_scope, value)): (usize, &(i64, usize, u32, bool, i8))| {
            let mut one = candidate(place as i64, *session, &[(*term, *times)]);
            one.previous = (place > 0).then(|| place as i64 - 1);
            one.in_scope = *in_scope;
            one.vector = vec![*value, 3].into();
            one.model_vector = if *in_scope { vec![3, *value, 1] } else { Vec::new() };
            one
        };
        let all: Vec<Candidate> = drawn.iter().enumerate().map(make).collect();
        let terms = terms();
        let asked = Asked {
            terms: &terms,
            stands_for: &[Some(1)],
            known: &[true; 2],
            vector: &[5, 5],
            finer: &[5, 5, 5],
            periods: &[],
            shown: 100,
        };
        let ranked = rank(&proposal(all.clone()), &asked);
        prop_assert_eq!(ranked.len(), all.iter().filter(|one| one.in_scope).count());
        prop_assert!(ranked.iter().all(|one| (0.0..=1.0).contains(&score(one.sum))));
        prop_assert!(ranked.windows(2).all(|pair| pair[0].sum >= pair[1].sum));
        prop_assert_eq!(ranked.clone(), rank(&proposal(all), &asked));
    }
}
