//! Commands that only the owner may run, and that ask before they act.

use std::io::{IsTerminal, stdin};

use super::Context;
use crate::printer::{self, errln};

/// What a command is about to do.
pub struct OwnersAct<'a> {
    /// The command, as the user types it.
    pub command: &'a str,
    /// The question to the user, which ends with a question mark.
    pub question: &'a str,
    /// Whether `--yes` was given.
    pub yes: bool,
}

impl OwnersAct<'_> {
    /// Returns whether the command may go on. If not, the reason was printed. Asks if standard input is a terminal.
    pub fn is_confirmed(&self, context: &Context) -> anyhow::Result<bool> {
        refuse_agents(context, self.command)?;
        if self.yes {
            return Ok(true);
        }
        if !stdin().is_terminal() {
            errln!(
                "hob: `{}` asks for confirmation, but standard input is not a terminal; add --yes to confirm",
                self.command
            );
            return Ok(false);
        }
        printer::err(&format!("{} [y/N] ", self.question));
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        let confirmed = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
        if !confirmed {
            errln!("hob: cancelled; nothing was changed");
        }
        Ok(confirmed)
    }
}

/// Fails inside an agent that Hob has started.
pub fn refuse_agents(context: &Context, command: &str) -> anyhow::Result<()> {
    if context.settings.home.is_inside_agent() {
        anyhow::bail!("agents may not run `{command}`; run it yourself, outside of the agent");
    }
    Ok(())
}
