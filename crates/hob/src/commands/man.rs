//! `hob man DIR`: writes manual pages, made from the help texts.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args as ClapArgs;
use hob_files::owned;
use serde_json::json;

use super::Exit;
use crate::printer::{self, outln};

/// Write manual pages into a folder, one for each command
#[derive(ClapArgs)]
#[command(after_help = "Example: hob man ~/.local/share/man/man1 && man hob-recall")]
pub struct Args {
    /// Folder to write to; it is created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Print {"files":[…]}
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, mut command: clap::Command) -> anyhow::Result<Exit> {
    command.build();
    let folder = &args.folder;
    owned::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let mut files = Vec::new();
    for (name, page) in pages_of(&command) {
        let path = folder.join(format!("{name}.1"));
        hob_files::write_over(&path, page.as_bytes(), 0o600)
            .with_context(|| format!("cannot write {}", path.display()))?;
        files.push(path);
    }
    if args.json {
        printer::out_json(&json!({"files": files}));
    } else {
        outln!("wrote {} pages to {}", files.len(), folder.display());
    }
    Ok(Exit::Done)
}

/// Returns the page of a command and those of its subcommands, each with its name.
fn pages_of(command: &clap::Command) -> Vec<(String, String)> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut pages = vec![(name.clone(), page(&name, command))];
    let shown =
        command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    pages.extend(shown.flat_map(pages_of));
    pages
}

fn page(name: &str, command: &clap::Command) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    let mut out = format!(
        ".TH {} 1 \"\" \"hob {}\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n",
        roff(&name.to_uppercase()),
        env!("CARGO_PKG_VERSION"),
        roff(name),
        roff(&about),
    );
    out.push_str(&paragraphs(usage));
    if let Some(long) = command.get_long_about() {
        out.push_str(".SH DESCRIPTION\n");
        out.push_str(&paragraphs(&long.to_string()));
    }
    section(&mut out, "ARGUMENTS", command.get_positionals());
    section(
        &mut out,
        "OPTIONS",
        command.get_arguments().filter(|argument| !argument.is_positional()),
    );
    let subcommands: Vec<&clap::Command> = command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
        .collect();
    if !subcommands.is_empty() {
        out.push_str(".SH COMMANDS\n");
        for sub in subcommands {
            let name = sub.get_display_name().unwrap_or(sub.get_name());
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            out.push_str(&format!(".TP\n\\fB{}\\fR(1)\n{}", roff(name), paragraphs(&about)));
        }
    }
    if let Some(help) = command.get_after_help() {
        out.push_str(".SH NOTES\n");
        out.push_str(&paragraphs(&help.to_string()));
    }
    out
}

fn section<'a>(out: &mut String, heading: &str, arguments: impl Iterator<Item = &'a clap::Arg>) {
    let mut arguments = arguments.filter(|argument| !argument.is_hide_set()).peekable();
    if arguments.peek().is_none() {
        return;
    }
    out.push_str(&format!(".SH {heading}\n"));
    for argument in arguments {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let shown = argument.to_string();
        out.push_str(&format!(".TP\n\\fB{}\\fR\n{}", roff(&shown), paragraphs(&help)));
    }
}

/// Returns paragraphs, which blank lines separate.
fn paragraphs(text: &str) -> String {
    let mut out = String::new();
    for (index, paragraph) in text.split("\n\n").enumerate() {
        if index > 0 {
            out.push_str(".PP\n");
        }
        for line in paragraph.lines() {
            out.push_str(&roff(line.trim_end()));
            out.push('\n');
        }
    }
    out
}

/// Escapes a line for roff: backslashes and hyphens, and a dot or quote that would begin a request.
fn roff(line: &str) -> String {
    let escaped = line.replace('\\', "\\e").replace('-', "\\-");
    match escaped.starts_with(['.', '\'']) {
        true => format!("\\&{escaped}"),
        false => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_roff_are_escaped() {
        assert_eq!(roff(".TH a-b \\c"), "\\&.TH a\\-b \\ec");
        assert_eq!(paragraphs("a\nb\n\nc"), "a\nb\n.PP\nc\n");
    }
}
