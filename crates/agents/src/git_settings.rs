//! Git in an agent's sandbox: it asks Hob for credentials, which the sandbox hides.

use std::ffi::OsString;
use std::io;
use std::path::Path;

/// The variable with the number of settings in Git's environment.
const COUNT: &str = "GIT_CONFIG_COUNT";

/// Adds Git's settings to an environment. Git asks the user's own helpers first, and then Hob, which answers for `hosts` and
/// names the setting for others. Addresses of these hosts that need an SSH key are used over HTTPS.
pub fn add(env: &mut Vec<(OsString, OsString)>, socket: &Path, hosts: &[String]) -> io::Result<()> {
    let program = hob_child::own_program()?;
    let helper = format!("!HOB_SOCKET={} {} git-credential", quoted(socket), quoted(&program));
    let mut settings = vec![("credential.helper".to_owned(), helper)];
    // SSH has another port than HTTPS.
    for host in hosts.iter().filter(|host| !host.contains(':')) {
        let key = format!("url.https://{host}/.insteadOf");
        settings.push((key.clone(), format!("git@{host}:")));
        settings.push((key, format!("ssh://git@{host}/")));
    }
    let known = env.iter().find(|(name, _)| name == COUNT);
    let first: usize = known.and_then(|(_, count)| count.to_str()?.parse().ok()).unwrap_or(0);
    env.retain(|(name, _)| name != COUNT);
    env.push((COUNT.into(), (first + settings.len()).to_string().into()));
    for (number, (key, value)) in settings.into_iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{}", first + number).into(), key.into()));
        env.push((format!("GIT_CONFIG_VALUE_{}", first + number).into(), value.into()));
    }
    Ok(())
}

/// Returns a path as one word of a shell.
pub(crate) fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_those_that_are_there() {
        let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let mut env = vec![
            pair("GIT_CONFIG_COUNT", "1"),
            pair("GIT_CONFIG_KEY_0", "user.name"),
            pair("GIT_CONFIG_VALUE_0", "Ada"),
        ];
        add(&mut env, Path::new("/run/it's.sock"), &["git.example".to_owned()]).unwrap();
        let value = |name: &str| {
            let found: Vec<_> = env.iter().filter(|(known, _)| known == name).collect();
            assert_eq!(found.len(), 1, "{name}");
            found[0].1.to_str().unwrap().to_owned()
        };
        assert_eq!(value("GIT_CONFIG_COUNT"), "4");
        assert_eq!(value("GIT_CONFIG_VALUE_0"), "Ada");
        assert_eq!(value("GIT_CONFIG_KEY_1"), "credential.helper");
        let helper = value("GIT_CONFIG_VALUE_1");
        assert!(helper.starts_with(r"!HOB_SOCKET='/run/it'\''s.sock' '/"), "{helper}");
        assert_eq!(value("GIT_CONFIG_KEY_3"), "url.https://git.example/.insteadOf");
        assert_eq!(value("GIT_CONFIG_VALUE_3"), "ssh://git@git.example/");
    }
}
