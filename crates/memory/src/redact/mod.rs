//! Masks secrets before anything is indexed, recalled or exported.
//!
//! The scanners are hand-written and driven by tables: this code runs in a hook that must start within
//! milliseconds, where compiling a hundred regular expressions would cost more than the work itself.
//!
//! [`scan`] passes over a text. It asks [`shapes`] and [`special`] for known kinds of tokens, [`assign`],
//! [`pairs`] and [`line`] for values of secret-looking names ([`names`], [`values`]), and [`entropy`] for
//! random-looking tokens, unless [`public_token`] knows them as public. [`words`] asks [`numbers`] for numbers
//! with check digits, [`word_runs`] for rows of words, and [`prose`] for secrets that words announce
//! ([`announced`]).
//! [`decode`], [`encoded`] and [`wrapped`] find what is encoded, has invisible characters inside, or is
//! broken over lines; [`neighbours`] finds what belongs to a finding. The word lists are in `data/`.

mod announced;
mod assign;
mod assigned_value;
mod bytes;
mod decode;
mod encoded;
mod entropy;
mod finding;
mod line;
mod mask;
mod names;
mod neighbours;
mod numbers;
mod pairs;
mod prose;
mod prose_values;
mod public_token;
mod scan;
mod sentence;
mod shapes;
mod special;
mod values;
mod word_list;
mod word_runs;
mod words;
mod wrapped;

#[cfg(test)]
mod sample_tests;
#[cfg(test)]
mod tests;

pub use finding::Finding;
pub use mask::{Masked, Original, RULES_VERSION, find, mask, unmask};
