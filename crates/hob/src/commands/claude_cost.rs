//! `hob claude-cost`: the command of Claude Code's status line in a terminal of Hob. It notes what the process has cost.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use clap::Args as ClapArgs;
use hob_files::owned;
use serde_json::Value;

use super::Exit;

/// The longest input that is read.
const MAX_INPUT_BYTES: u64 = 1 << 20;
/// The width of the number in the file. A shorter number replaces all of a longer one.
const COST_WIDTH: usize = 24;

/// Note the cost that Claude Code names in its status line
#[derive(ClapArgs)]
pub struct Args {
    /// The file that takes the cost; it exists
    file: PathBuf,
    /// Print what was read, for the status line of the user
    #[arg(long)]
    forward: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut input = Vec::new();
    io::stdin().lock().take(MAX_INPUT_BYTES).read_to_end(&mut input)?;
    if args.forward {
        // The reader may be gone. The cost is noted all the same.
        let _ = io::stdout().lock().write_all(&input);
    }
    if let Some(cost) = cost_in(&input) {
        owned::write_existing(&args.file, format!("{cost:>COST_WIDTH$.9}\n").as_bytes())?;
    }
    Ok(Exit::Done)
}

/// Returns the cost in USD that the input of a status line names.
fn cost_in(input: &[u8]) -> Option<f64> {
    let input: Value = serde_json::from_slice(input).ok()?;
    input["cost"]["total_cost_usd"].as_f64().filter(|cost| (0.0..=1e9).contains(cost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_an_amount() {
        let cost = |text: &str| cost_in(text.as_bytes());
        assert_eq!(cost(r#"{"cost": {"total_cost_usd": 0.0105}, "model": {}}"#), Some(0.0105));
        assert_eq!(cost(r#"{"cost": {"total_cost_usd": 3}}"#), Some(3.0));
        for none in ["", "{}", r#"{"cost": {"total_cost_usd": -1}}"#, r#"{"cost": "1"}"#] {
            assert_eq!(cost(none), None, "{none}");
        }
        assert_eq!(format!("{:>COST_WIDTH$.9}\n", 1e9).len(), COST_WIDTH + 1);
    }
}
