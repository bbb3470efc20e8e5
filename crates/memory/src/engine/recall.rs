//! Recall, and the summary that a session starts with.

use std::collections::HashMap;

use hob_domain::memory::{MemoryStore, NOTE_SESSION, Principal, Record, Scope, TurnSelection};
use hob_domain::{StoreError, Timestamp};

use super::state::Engine;
use crate::recall::analysed_query::{AnalysedQuery, without_any_names};
use crate::recall::newest::newest_first;
use crate::recall::pack::pack;
use crate::recall::rank::turn_idfs;
use crate::recall::rerank::rerank;
use crate::recall::scores::{put_first, scores};
use crate::recall::types::{ScoredCandidate, ScoredRecord};
use crate::recall::weights::{RERANKED_RECORDS, SPARE_RECORDS, WEIGHTS};
use crate::recall::{session_start, user_rules};
use crate::redact;

/// A question to the memory.
#[derive(Debug, Clone, PartialEq)]
pub struct RecallQuery {
    pub text: String,
    /// About how many tokens the hits may have together.
    pub budget_tokens: usize,
    /// The most hits.
    pub limit: usize,
    pub scope: Scope,
    /// A project whose hits come before those of other projects in scope.
    pub preferred_project: Option<String>,
    /// The lowest score of a hit. By default only turns that say nothing of what is asked are left
    /// out.
    pub min_score: Option<f64>,
    /// Whether each hit gets the features that it was ranked by.
    pub explain: bool,
}

/// The answer to a [`RecallQuery`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recall {
    /// The best first.
    pub hits: Vec<RecallHit>,
    /// About how many tokens the hits have together.
    pub budget_used: usize,
    /// The number of matches that are not among the hits: duplicates, and those that did not fit. Turns below the lowest
    /// score are no matches.
    pub omitted: usize,
}

/// A turn that answers a query.
#[derive(Debug, Clone, PartialEq)]
pub struct RecallHit {
    pub record: Record,
    /// Whether the record's text is only the passage of it that answers.
    pub is_cut: bool,
    /// From 0 to 1.
    pub score: f64,
    /// Why the turn was found, in words for the user.
    pub reason: String,
    /// The features that the turn was ranked by, with their names; empty unless asked for.
    pub features: Vec<(&'static str, f64)>,
}

impl Engine {
    /// Finds the turns that answer a query. Only reads.
    pub async fn recall(
        &self,
        principal: &Principal,
        query: &RecallQuery,
    ) -> Result<Recall, StoreError> {
        self.recall_at(principal, query, Timestamp::now()).await
    }

    /// Finds the turns that answer a query asked at `now`. For one state of the store and one time
    /// the answer is always the same.
    pub async fn recall_at(
        &self,
        principal: &Principal,
        query: &RecallQuery,
        now: Timestamp,
    ) -> Result<Recall, StoreError> {
        let indexer = &self.inner.preparer.indexer;
        let model = &self.inner.model;
        let store = &self.inner.store;
        let _foreground = model.enter_foreground();
        // The store has secrets only in their masked form, so the query is masked in the same way.
        let text = redact::mask(&query.text).text;
        let model_vector = model.embed_query(|| without_any_names(&text)).await;
        let analysed = AnalysedQuery::new(indexer, &text, model_vector, now);
        let max_records = query.limit.saturating_add(SPARE_RECORDS).max(RERANKED_RECORDS);
        let mut searches: Vec<Vec<ScoredCandidate>> = Vec::new();
        let mut seen: HashMap<i64, (usize, usize)> = HashMap::new();
        let mut idfs = Vec::new();
        for (search, scope) in searched_scopes(query).into_iter().enumerate() {
            let mut scored: Vec<ScoredCandidate> = Vec::new();
            // Candidates are compared with each other, so their number must not depend on the limit:
            // a question gets the same first hits for every limit. More follow where more are asked
            // for.
            let more = Some(query.limit).filter(|limit| *limit > WEIGHTS.candidates);
            for limit in [Some(WEIGHTS.candidates), more].into_iter().flatten() {
                let set =
                    store.candidates(principal, &scope, analysed.candidate_query(limit)).await?;
                let without_names = || analysed.without_common_names(indexer, &set);
                let model_vector = model.embed_query(without_names).await;
                for candidate in analysed.rank(indexer, &set, model_vector.as_ref(), max_records) {
                    match seen.get(&candidate.seq) {
                        None => {
                            seen.insert(candidate.seq, (search, scored.len()));
                            scored.push(candidate);
                        }
                        Some((earlier, at)) if *earlier < search && limit == WEIGHTS.candidates => {
                            searches[*earlier][*at].judge_by(&candidate);
                        }
                        Some(_) => {}
                    }
                }
                idfs = turn_idfs(&set);
                if scored.len() >= query.limit {
                    break;
                }
            }
            searches.push(scored);
        }
        // All features of all hits are explained, so then all texts count.
        let max_reranked = if query.explain { usize::MAX } else { RERANKED_RECORDS };
        // For each search the last turn that is read, and how many after it are not.
        let mut unread = Vec::new();
        let mut records = Vec::new();
        for mut scored in searches {
            let unread_count = scored.len().saturating_sub(max_records);
            scored.truncate(max_records);
            unread.extend(scored.last().map(|last| (last.seq, unread_count)));
            let mut read = read_records(store.as_ref(), principal, scored).await?;
            let reranked = read.len().min(max_reranked);
            rerank(&text, &mut read[..reranked]);
            records.append(&mut read);
        }
        let preferred = match &query.preferred_project {
            Some(project) => put_first(project, &mut records),
            None => 0,
        };
        let passages = analysed.passages(&indexer.analyser, &idfs);
        let (first, rest) = records.split_at_mut(preferred);
        for records in [first, rest] {
            newest_first(&text, records, &passages, &indexer.analyser);
        }
        let scores = scores(&mut records, preferred, query.min_score);
        // Those after a turn that is no match are probably no matches either.
        let unread = unread.iter().filter(|(last, _)| scores.contains_key(last));
        let unread: usize = unread.map(|(_, count)| count).sum();
        let packed = pack(records, query.budget_tokens, query.limit, &passages);
        let hits = packed.records.into_iter().map(|scored| {
            let (seq, reason) = (scored.record.seq, analysed.reason(&scored, &indexer.analyser));
            let features = if query.explain { scored.features.named() } else { Vec::new() };
            RecallHit {
                record: scored.record,
                is_cut: scored.is_cut,
                score: scores.get(&seq).copied().unwrap_or_default(),
                reason,
                features,
            }
        });
        Ok(Recall {
            hits: hits.collect(),
            budget_used: packed.budget_used,
            omitted: packed.omitted + unread,
        })
    }

    /// Returns what a colleague would want to know first about a project; empty if nothing is
    /// stored.
    pub async fn session_start(
        &self,
        principal: &Principal,
        project: &str,
        session: Option<&str>,
        budget_tokens: usize,
    ) -> Result<String, StoreError> {
        let store = &self.inner.store;
        let [notes, facts] = [true, false].map(|of_agents| {
            let (project, limit) = (project.to_owned(), session_start::MAX_FACTS);
            TurnSelection::Facts { project, of_agents, limit }
        });
        let notes = store.turns(principal, notes).await?;
        let facts = store.turns(principal, facts).await?;
        let sessions =
            store.latest_sessions(principal, project, session, session_start::MAX_SESSIONS).await?;
        let prompts = TurnSelection::LatestPrompts {
            project: project.to_owned(),
            max_chars: user_rules::MAX_PROMPT_CHARS,
            limit: user_rules::MAX_PROMPTS,
        };
        let prompts = store.turns(principal, prompts).await?;
        let rules = user_rules::rules(&prompts, &self.inner.preparer.indexer.analyser);
        Ok(session_start::compose(&facts, &rules, &notes, &sessions, budget_tokens))
    }
}

/// Returns the scopes to search, in order. The preferred project is searched by itself as well:
/// among many other projects its turns might not become candidates.
fn searched_scopes(query: &RecallQuery) -> Vec<Scope> {
    let mut scopes = vec![query.scope.clone()];
    if let (None, Some(preferred)) = (&query.scope.project, &query.preferred_project) {
        scopes.insert(0, Scope { project: Some(preferred.clone()), ..query.scope.clone() });
    }
    scopes
}

/// Reads the records of candidates and keeps the candidates' order.
async fn read_records(
    store: &dyn MemoryStore,
    principal: &Principal,
    candidates: Vec<ScoredCandidate>,
) -> Result<Vec<ScoredRecord>, StoreError> {
    let seqs = candidates.iter().map(|candidate| candidate.seq).collect();
    let records = store.turns(principal, TurnSelection::Numbers(seqs)).await?;
    let mut by_seq: HashMap<i64, Record> =
        records.into_iter().map(|record| (record.seq, record)).collect();
    let read = |candidate: ScoredCandidate| {
        let record = by_seq.remove(&candidate.seq)?;
        let ScoredCandidate { sum, features, likelihood, mut evidence, .. } = candidate;
        // The notes of a project are stored as one session, but have nothing to do with each other.
        evidence.near_match &= !record.session.starts_with(NOTE_SESSION);
        Some(ScoredRecord { record, sum, features, likelihood, evidence, is_cut: false })
    };
    Ok(candidates.into_iter().filter_map(read).collect())
}
