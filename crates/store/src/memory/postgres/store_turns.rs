//! Storing captured turns, each once. A batch reads all rows that matter, decides in memory, and
//! writes all changes, so that it takes a few round trips to the server however large it is.

use hob_domain::memory::{ImportMark, NewTurn};
use tokio_postgres::Error;

use super::batch::{TurnBatch, lock};
use super::cipher::Cipher;
use super::names::{CaptureOutcome, StoredNames};
use super::write_turns::save_marks;
use crate::postgres::connections::Client;

/// Stores turns in order. Returns what became of each, and the number of the newest turn
/// afterwards.
pub(super) async fn store(
    client: &Client,
    cipher: &Cipher,
    speaker: &str,
    turns: &[NewTurn],
    marks: &[ImportMark],
) -> Result<(Vec<CaptureOutcome>, i64), Error> {
    let names: Vec<StoredNames> = turns.iter().map(|turn| StoredNames::of(cipher, turn)).collect();
    let numbers = lock(client).await?;
    let mut batch = TurnBatch::empty(cipher, speaker, numbers);
    batch.read(client, turns, &names).await?;
    let outcomes =
        turns.iter().zip(&names).map(|(turn, names)| batch.decide(turn, names)).collect();
    batch.write(client, numbers).await?;
    save_marks(client, cipher, marks).await?;
    Ok((outcomes, batch.numbers.seq))
}
