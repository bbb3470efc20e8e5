//! A sentence model of the BERT family, such as all-MiniLM-L6-v2 or bge-small-en-v1.5, from a
//! folder that the user names.
//!
//! The model takes milliseconds where the built-in table takes microseconds. Turns therefore get
//! its vectors in the background and in addition to those of the table.

mod bert;
mod error;
mod sentence_model;
mod tensors;
mod wordpiece;

pub use error::ModelError;
pub use sentence_model::SentenceModel;
