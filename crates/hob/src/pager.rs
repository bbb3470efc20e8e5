//! Prints long output on a terminal through a pager.

use clap::Args as ClapArgs;
use console::measure_text_width;
use hob_child::{Size, show_in_pager};

use crate::hooks::plugin::is_on_path;
use crate::printer;
use crate::raw_terminal;
use crate::settings::Resolved;
use crate::view::View;

/// The pager of a user who has named none.
const DEFAULT_PAGER: &str = "less -FRX";
const DEFAULT_PROGRAM: &str = "less";

// The option of commands that may print more than a screen. A doc comment would become their help text.
#[derive(Debug, Clone, Copy, Default, ClapArgs)]
pub struct PagerOptions {
    /// Do not page long output on a terminal (setting `pager`)
    #[arg(long)]
    no_pager: bool,
}

impl PagerOptions {
    /// Prints what Hob has drawn. If it does not fit on the terminal, a pager shows it.
    pub fn print(self, settings: &Resolved, text: &str) {
        let is_long = View::of_stdout().is_terminal() && !fits(text, raw_terminal::size());
        let named = settings.values.pager.trim();
        match pager(named, std::env::var("PAGER").ok().as_deref(), is_on_path) {
            Some(pager) if is_long && !self.no_pager => {
                if show_in_pager(&pager, text).is_err() {
                    printer::out_drawing(text);
                }
            }
            _ => printer::out_drawing(text),
        }
    }
}

/// Returns the command of the pager: the setting's, else that of `$PAGER`, else `less` if there is one. `cat` and an
/// empty `$PAGER` mean none.
fn pager(setting: &str, variable: Option<&str>, is_there: impl Fn(&str) -> bool) -> Option<String> {
    let named = if setting.is_empty() { variable } else { Some(setting) };
    match named.map(str::trim) {
        Some("" | "cat") => None,
        Some(named) => Some(named.to_owned()),
        None => is_there(DEFAULT_PROGRAM).then(|| DEFAULT_PAGER.to_owned()),
    }
}

/// Returns whether a text fits on a screen with a prompt below it.
fn fits(text: &str, size: Size) -> bool {
    let columns = usize::from(size.cols).max(1);
    let rows = text.lines().map(|line| measure_text_width(line).div_ceil(columns).max(1));
    rows.sum::<usize>() < usize::from(size.rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_comes_before_variable_and_default() {
        let check = |setting: &str, variable: Option<&str>, expect: Option<&str>| {
            assert_eq!(pager(setting, variable, |_| true).as_deref(), expect);
        };
        check("", None, Some(DEFAULT_PAGER));
        check("", Some("more"), Some("more"));
        check("most", Some("more"), Some("most"));
        check("", Some(""), None);
        check("", Some("cat"), None);
        check("cat", Some("more"), None);
        assert_eq!(pager("", None, |_| false), None);
    }

    #[test]
    fn long_lines_take_several_rows() {
        let size = Size { rows: 4, cols: 10 };
        assert!(fits("a\nb\nc\n", size));
        assert!(!fits("a\nb\nc\nd\n", size));
        assert!(!fits("aaaaaaaaaaaaaaaaaaaaaaaaa\nb\n", size));
        assert!(!fits("日本語日本語日本語日本語\nb\n", size), "24 columns");
        assert!(fits("\x1b[1;33maaaaaaaaaa\x1b[m\n\n\n", size), "colours take no room");
    }
}
