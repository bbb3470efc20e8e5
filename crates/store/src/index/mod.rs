//! What both stores of the memory do alike: how postings are packed, how terms are counted, which of them
//! are worth reading, and which turns are promising. Nothing here knows where any of it lies.

mod codes;
mod first;
mod postings;
mod promising;
mod terms;
#[cfg(test)]
mod tests;

pub(crate) use codes::{Agreement, CLOSER, MODEL_BYTES, TABLE_BYTES, code, differences, words};
pub(crate) use first::First;
pub(crate) use postings::{Header, Posting, pack, unpack};
pub(crate) use promising::{
    BESIDE, FEW, bounds, contexts, count_terms, promising, spread_of, worth_reading,
};
pub(crate) use terms::{counted, each, posting, room, total};
