//! Lines in, their telling terms out, separated by blanks: for fitting the table to what the index has.

use std::io::{BufRead, Write};

use hob_memory::Analyser;

fn main() -> std::io::Result<()> {
    let analyser = Analyser::default();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let mut terms = analyser.terms(&line?);
        terms.retain(|term| !analyser.is_stop(term));
        writeln!(out, "{}", terms.join(" "))?;
    }
    out.flush()
}
