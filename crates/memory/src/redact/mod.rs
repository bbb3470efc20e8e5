//! Masks secrets before anything is indexed, recalled or exported.
//!
//! The scanners are hand-written and driven by tables: this code runs in a hook that must start within
//! milliseconds, where compiling a hundred regular expressions would cost more than the work itself.
//!
//! [`scan`] makes one pass over a text. It asks [`shapes`] and [`special`] for known kinds of tokens,
//! [`assign`] and [`line`] for values of secret-looking names ([`names`], [`values`]), and [`entropy`]
//! for random-looking tokens, unless [`public_token`] knows them as public. The word lists are in
//! `data/`.

mod assign;
mod bytes;
mod entropy;
mod finding;
mod line;
mod mask;
mod names;
mod public_token;
mod scan;
mod shapes;
mod special;
mod values;
mod word_list;

#[cfg(test)]
mod tests;

pub use finding::Finding;
pub use mask::{Masked, Original, RULES_VERSION, find, mask, unmask};
