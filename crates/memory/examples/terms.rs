//! Prints the terms of each line of standard input without stop words, separated by spaces.
//! `scripts/train-table` fits the table to them.

use std::io::{BufRead, Write};

use hob_memory::Analyser;

fn main() -> std::io::Result<()> {
    let analyser = Analyser::default();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let mut terms = analyser.terms(&line?);
        terms.retain(|term| !analyser.is_stop_word(term));
        writeln!(out, "{}", terms.join(" "))?;
    }
    out.flush()
}
