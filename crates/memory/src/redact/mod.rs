//! Masks secrets before anything is indexed, recalled or exported.
//!
//! The scanners are hand-written and driven by tables: this code runs in a hook that must start within
//! milliseconds, where compiling a hundred regular expressions would cost more than the work itself.
//!
//! [`scan`] passes over a text. It asks [`shapes`] and [`token_parts`] for known kinds of tokens,
//! [`key_blocks`] for private keys in blocks, [`url_passwords`] for passwords in URLs, [`assign`],
//! [`distant_names`] and [`line`] for values of secret-looking names ([`names`], [`values`]), and [`entropy`] for
//! random-looking tokens, unless [`public_token`] knows them as public; [`hashes`] for hashes of passwords,
//! [`key_bytes`] and [`jwk`] for keys in bytes and in JSON. [`words`] asks [`numbers`] for numbers with check
//! digits, [`word_runs`] for rows of words, and [`prose`] for secrets that words announce ([`announced`]),
//! [`account_numbers`] among them.
//! [`decode`], [`encoded`] and [`wrapped`] find what is encoded, has invisible characters inside, or is
//! broken over lines; [`neighbours`] finds what belongs to a finding. The word lists are in `data/`.
//! [`masked_name`](masked_name()) masks names of sessions, records and folders.

mod account_numbers;
mod account_tokens;
mod announced;
mod assign;
mod assigned_value;
mod byte_row;
mod bytes;
mod decode;
mod distant_names;
mod encoded;
mod entropy;
mod finding;
mod hashes;
mod jwk;
mod key_blocks;
mod key_bytes;
mod line;
mod mask;
mod masked_name;
mod names;
mod numbers;
mod prose;
mod prose_values;
mod public_token;
mod scan;
mod sentence;
mod shape_table;
mod shapes;
mod token_parts;
mod url_passwords;
mod values;
mod word_list;
mod word_runs;
mod words;
mod wrapped;

#[cfg(test)]
mod class_tests;
#[cfg(test)]
mod sample_tests;
#[cfg(test)]
mod tests;

pub use finding::Finding;
pub use mask::{Masked, Original, RULES_VERSION, find, mask, unmask};
pub(crate) use masked_name::masked_name;
