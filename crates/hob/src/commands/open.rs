//! `hob open`: opens the console.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use hob_child::open_in_browser;
use serde_json::json;

use super::confirm::refuse_agents;
use super::{Context, Exit};
use crate::printer::{self, errln, outln};
use crate::socket::client;
use crate::view::View;

/// Open the web console in your browser, and print its URL
#[derive(ClapArgs)]
#[command(
    after_help = "Without a terminal or a display, and with --json, the command only prints the URL.\n\n\
Exit code: 3 if the server is not running."
)]
pub struct Args {
    /// Print {"url":…,"token_file":…}
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    refuse_agents(context, "hob open")?;
    let settings = &context.settings;
    let Ok(hello) = client::hello(&settings.socket) else {
        errln!("hob: not running; start the server with `hob serve`");
        return Ok(Exit::WrongState);
    };
    let Some(url) = hello.http else {
        errln!(
            "hob: the server runs without HTTP, so there is no console; start it without --no-http"
        );
        return Ok(Exit::Failed);
    };
    let token_file = settings.home.admin_token();
    if args.json {
        printer::out_json(&json!({"url": url, "token_file": token_file}));
        return Ok(Exit::Done);
    }
    outln!("{url}");
    match settings.admin_token {
        Some(_) => errln!("sign in with the token in $HOB_ADMIN_TOKEN"),
        None => errln!("sign in with the token in {}", token_file.display()),
    }
    if View::of_stdout().is_terminal()
        && has_display(|name| std::env::var_os(name))
        && let Err(error) = open_in_browser(&url)
    {
        errln!("hob: cannot open a browser: xdg-open: {error}; open the URL yourself");
    }
    Ok(Exit::Done)
}

/// Returns whether the user sees what a browser shows: on X11 or Wayland.
fn has_display(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_is_named_by_either_variable() {
        let check = |set: &[(&str, &str)], expect: bool| {
            let value = |name: &str| set.iter().find(|(known, _)| *known == name);
            let found = has_display(|name| value(name).map(|(_, value)| OsString::from(value)));
            assert_eq!(found, expect, "{set:?}");
        };
        check(&[], false);
        check(&[("DISPLAY", "")], false);
        check(&[("DISPLAY", ":0")], true);
        check(&[("DISPLAY", ""), ("WAYLAND_DISPLAY", "wayland-0")], true);
    }
}
