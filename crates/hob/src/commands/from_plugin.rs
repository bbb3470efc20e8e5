//! The option `--from-plugin`, with which Hob's plugins run its commands.

use clap::Args as ClapArgs;
use hob_transcript::AgentClient;

use crate::hooks::{ClientFolders, plugin};
use crate::mcp_standby;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ClapArgs)]
pub struct FromPlugin {
    /// For use by Hob's plugin for CLIENT (`claude`, `codex` or `gemini`) only. If CLIENT's own settings also start this command,
    /// the copy started by the plugin exits at once, so that the work is not done twice
    #[arg(long = "from-plugin", value_name = "CLIENT", value_parser = client)]
    client: Option<AgentClient>,
}

impl FromPlugin {
    /// Reads the arguments of a command that has no others. Returns `None` if they are different.
    pub fn read(arguments: &[String]) -> Option<FromPlugin> {
        match arguments {
            [] => Some(FromPlugin::default()),
            [option, name] if option == "--from-plugin" => {
                Some(FromPlugin { client: Some(client(name).ok()?) })
            }
            _ => None,
        }
    }

    /// Returns whether a plugin runs this hook and the client's settings run one for the event, too.
    pub fn leaves_hook_to_settings(self, event: &str) -> bool {
        self.with_folders(|client, folders| plugin::settings_handle(client, folders, event))
    }

    /// Returns whether a plugin runs this MCP server and the client's settings run one, too.
    pub fn leaves_server_to_settings(self) -> bool {
        self.with_folders(mcp_standby::settings_run_server)
    }

    fn with_folders(self, check: impl Fn(AgentClient, &ClientFolders) -> bool) -> bool {
        let (Some(client), Ok(folders)) = (self.client, ClientFolders::from_environment()) else {
            return false;
        };
        check(client, &folders)
    }
}

fn client(name: &str) -> Result<AgentClient, String> {
    let found = AgentClient::ALL.into_iter().find(|client| client.as_str() == name);
    found.ok_or_else(|| format!("Hob has no plugin for {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_arguments_are_read() {
        let read = |arguments: &[&str]| {
            FromPlugin::read(&arguments.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(read(&[]), Some(FromPlugin { client: None }));
        let claude = FromPlugin { client: Some(AgentClient::Claude) };
        assert_eq!(read(&["--from-plugin", "claude"]), Some(claude));
        for other in [&["--help"][..], &["--from-plugin"], &["--from-plugin", "other"]] {
            assert_eq!(read(other), None, "{other:?}");
        }
    }
}
