//! Puts records in the order in which they were said: in the first batch of a new file the lines are
//! not always in causal order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use crate::turn::ReadTurn;

/// A record as a link of the chain, whether or not it is a turn.
#[derive(Debug, Default)]
pub struct Link {
    pub id: Option<String>,
    pub parent: Option<String>,
    /// The prompt it belongs to, where it says so; what comes after it belongs there, too.
    pub prompt: Option<String>,
    pub turn: Option<ReadTurn>,
}

/// The turns, each after its parent, and of those that could come next the earliest in the file.
///
/// A record without an id comes after the one before it. A record that is there twice gives one
/// turn. A parent that is not there does not hold anything back, and neither does a circle.
pub fn in_order(mut links: Vec<Link>, prompt: &mut Option<String>) -> Vec<ReadTurn> {
    let Chain { parents, doubles } = chain(&links);
    for (original, double) in doubles {
        let turn = links[double].turn.take();
        let known = &mut links[original].turn;
        *known = known.take().or(turn);
    }
    let mut taken = |link: &mut Link| {
        if link.prompt.is_some() {
            *prompt = link.prompt.take();
        }
        let turn = link.turn.take()?;
        Some(ReadTurn { prompt_id: prompt.clone(), ..turn })
    };
    let after_its_parent =
        |(index, parent): (usize, &Option<usize>)| parent.is_none_or(|parent| parent < index);
    if parents.iter().enumerate().all(after_its_parent) {
        return links.iter_mut().filter_map(taken).collect();
    }
    sequence(&parents).into_iter().filter_map(|index| taken(&mut links[index])).collect()
}

/// How the records hang together, by their places.
struct Chain {
    /// The record that each one comes after.
    parents: Vec<Option<usize>>,
    /// Records that are there again: where the record was first, and where it is again.
    doubles: Vec<(usize, usize)>,
}

fn chain(links: &[Link]) -> Chain {
    let mut places: HashMap<&str, usize> = HashMap::with_capacity(links.len());
    let mut doubles = Vec::new();
    for (index, link) in links.iter().enumerate() {
        let Some(id) = link.id.as_deref() else { continue };
        let original = *places.entry(id).or_insert(index);
        if original != index {
            doubles.push((original, index));
        }
    }
    let parent_of = |(index, link): (usize, &Link)| match (&link.id, &link.parent) {
        (_, Some(parent)) => places.get(parent.as_str()).copied().filter(|at| *at != index),
        (None, None) => index.checked_sub(1),
        (Some(_), None) => None,
    };
    Chain { parents: links.iter().enumerate().map(parent_of).collect(), doubles }
}

/// The places in the order in which their records come.
fn sequence(parents: &[Option<usize>]) -> Vec<usize> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); parents.len()];
    let mut ready = BinaryHeap::new();
    for (index, parent) in parents.iter().enumerate() {
        match parent {
            Some(parent) => children[*parent].push(index),
            None => ready.push(Reverse(index)),
        }
    }
    let mut placed = vec![false; parents.len()];
    let mut sequence = Vec::with_capacity(parents.len());
    let mut earliest = 0;
    loop {
        while let Some(Reverse(index)) = ready.pop() {
            if !std::mem::replace(&mut placed[index], true) {
                sequence.push(index);
                ready.extend(children[index].iter().copied().map(Reverse));
            }
        }
        while placed.get(earliest) == Some(&true) {
            earliest += 1;
        }
        if earliest == parents.len() {
            return sequence;
        }
        // What is left hangs on a circle. It is opened at its earliest record, which makes
        // everything that hangs on it ready in its turn.
        ready.push(Reverse(opening(earliest, parents)));
    }
}

/// The earliest record of the circle that the parents of `from` lead to.
fn opening(from: usize, parents: &[Option<usize>]) -> usize {
    let mut passed = HashSet::new();
    let mut at = from;
    while passed.insert(at) {
        match parents[at] {
            Some(parent) => at = parent,
            None => return at,
        }
    }
    let mut best = at;
    let mut walk = parents[at];
    while let Some(next) = walk.filter(|next| *next != at) {
        best = best.min(next);
        walk = parents[next];
    }
    best
}
