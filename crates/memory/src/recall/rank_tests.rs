use hob_domain::Timestamp;
use hob_domain::memory::SessionStatistics;
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

/// A hundred turns in ten sessions. The first term is frequent, the second rare, the third related
/// to the second.
fn candidate_set(candidates: Vec<Candidate>) -> CandidateSet {
    let mut sessions: Vec<i64> = candidates.iter().map(|candidate| candidate.session).collect();
    sessions.dedup();
    let statistics = |session: i64| {
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
        session_statistics: sessions.into_iter().map(statistics).collect(),
        candidates,
    }
}

fn terms() -> Vec<QueryTerm> {
    let term = |(term, weight): (&str, f32)| QueryTerm { term: term.to_owned(), weight };
    [("common", 1.0), ("rare", 1.0), ("related", 0.3)].map(term).into()
}

fn order(set: &CandidateSet, vector: &[i8], periods: &[Period]) -> Vec<i64> {
    let terms = terms();
    let query = RankingQuery {
        terms: &terms,
        related_to: &[Some(1)],
        has_vector: &[true; 2],
        vector,
        model_vector: &[],
        periods,
        explained: 100,
    };
    rank(set, &query).into_iter().map(|one| one.seq).collect()
}

#[test]
fn rare_terms_weigh_more_and_related_terms_less() {
    let all = vec![
        candidate(1, 1, &[(0, 1)]),
        candidate(2, 2, &[(1, 1)]),
        candidate(3, 3, &[(2, 1)]),
        candidate(4, 4, &[(0, 1), (1, 1)]),
    ];
    assert_eq!(order(&candidate_set(all), &[0, 0], &[]), [4, 2, 3, 1]);
}

#[test]
fn turns_after_a_match_are_lifted() {
    let mut all = vec![
        candidate(1, 1, &[(1, 1)]),
        candidate(2, 1, &[]),
        candidate(3, 1, &[]),
        candidate(4, 2, &[(0, 1)]),
    ];
    all[1].previous = Some(1);
    all[2].previous = Some(2);
    let set = candidate_set(all);
    assert_eq!(order(&set, &[0, 0], &[])[..3], [1, 2, 3]);
}

#[test]
fn vectors_periods_and_age_decide_between_equals() {
    let all: Vec<Candidate> = (1..=4).map(|seq| candidate(seq, seq, &[(1, 1)])).collect();
    assert_eq!(order(&candidate_set(all.clone()), &[0, 0], &[]), [4, 3, 2, 1]);
    let mut near = all.clone();
    near[1].vector = vec![9, 1].into();
    near[2].vector = vec![-9, 1].into();
    assert_eq!(order(&candidate_set(near), &[1, 0], &[])[0], 2);
    let periods = periods("on 4 January 1970", Timestamp::UNIX_EPOCH);
    assert_eq!(order(&candidate_set(all.clone()), &[0, 0], &periods)[0], 3);
    let mut outside = all;
    outside[3].in_scope = false;
    assert_eq!(order(&candidate_set(outside), &[0, 0], &[]), [3, 2, 1]);
    assert!(order(&CandidateSet::default(), &[0, 0], &[]).is_empty());
}

#[test]
fn turns_of_the_best_length_are_preferred() {
    let mut all: Vec<Candidate> = (1..=3).map(|seq| candidate(seq, seq, &[])).collect();
    (all[0].length, all[1].length, all[2].length) = (40, 4, 400);
    assert_eq!(order(&candidate_set(all), &[0, 0], &[]), [1, 2, 3]);
}

#[test]
fn vectors_weigh_more_when_no_turn_has_the_words() {
    let mut all = vec![candidate(1, 1, &[(0, 1)]), candidate(2, 2, &[])];
    all[0].vector = vec![10, 90].into();
    all[1].vector = vec![15, 90].into();
    let mut set = candidate_set(all);
    assert_eq!(order(&set, &[1, 0], &[])[0], 1);
    set.document_frequencies[1] = DocumentFrequency::default();
    assert_eq!(order(&set, &[1, 0], &[])[0], 2);
}

/// Returns the order by table vectors and model vectors.
fn order_by_both(set: &CandidateSet, vector: &[i8], model_vector: &[i8]) -> Vec<i64> {
    let terms = terms();
    let query = RankingQuery {
        terms: &terms,
        related_to: &[Some(1)],
        has_vector: &[true; 2],
        vector,
        model_vector,
        periods: &[],
        explained: 100,
    };
    rank(set, &query).into_iter().map(|one| one.seq).collect()
}

#[test]
fn model_vectors_replace_table_vectors() {
    // The table prefers the first turns, the model the last.
    let make = |seq: i64| {
        let mut one = candidate(seq, seq, &[(1, 1)]);
        one.vector = vec![60, seq as i8].into();
        one.model_vector = vec![60, 30 - seq as i8, 0];
        one
    };
    let all: Vec<Candidate> = (1..=20).map(make).collect();
    let by_table = order_by_both(&candidate_set(all.clone()), &[1, 0], &[]);
    assert_eq!((by_table[0], by_table[19]), (1, 20));
    let by_model = order_by_both(&candidate_set(all.clone()), &[1, 0], &[1, 0, 0]);
    assert_eq!((by_model[0], by_model[19]), (20, 1));
    // A query vector of another width is of another kind and is ignored.
    assert_eq!(order_by_both(&candidate_set(all), &[1, 0], &[1, 0]), by_table);
}

#[test]
fn turn_without_model_vector_is_ranked_by_the_table() {
    // All are far but two: one is near by its model vector, one without a model vector by its table
    // vector.
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
    let mixed = order_by_both(&candidate_set(all.clone()), &[1, 0], &[1, 0, 0]);
    let mut first = mixed[..2].to_vec();
    first.sort_unstable();
    assert_eq!(first, [3, 7]);
    // A turn without any vector counts as an average one.
    let mut without = all;
    without[19].vector = Vec::new().into();
    without[19].model_vector = Vec::new();
    let mixed = order_by_both(&candidate_set(without), &[1, 0], &[1, 0, 0]);
    let position = mixed.iter().position(|seq| *seq == 20).unwrap();
    assert!((3..37).contains(&position), "{position}");
    // Too few model vectors have no meaningful mean, so the table decides.
    let few: Vec<Candidate> = (1..=40)
        .map(|seq| {
            let mut one = make(seq);
            one.model_vector.truncate(if seq < 5 { 3 } else { 0 });
            one
        })
        .collect();
    assert_eq!(order_by_both(&candidate_set(few), &[1, 0], &[1, 0, 0])[0], 7);
}

proptest! {
    /// For any candidates: each one in scope is ranked once, scores are from 0 to 1 and sorted, and
    /// the result is deterministic.
    #[test]
    fn every_candidate_set_has_one_order(
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
        let query = RankingQuery {
            terms: &terms,
            related_to: &[Some(1)],
            has_vector: &[true; 2],
            vector: &[5, 5],
            model_vector: &[5, 5, 5],
            periods: &[],
            explained: 100,
        };
        let ranked = rank(&candidate_set(all.clone()), &query);
        prop_assert_eq!(ranked.len(), all.iter().filter(|one| one.in_scope).count());
        prop_assert!(ranked.iter().all(|one| (0.0..=1.0).contains(&one.likelihood.score(one.sum, 0))));
        prop_assert!(ranked.iter().all(|one| (0.0..=1.0 + 1e-9).contains(&one.likelihood.coverage)));
        prop_assert!(ranked.windows(2).all(|pair| pair[0].sum >= pair[1].sum));
        prop_assert_eq!(ranked.clone(), rank(&candidate_set(all), &query));
    }
}
