//! The address of a PostgreSQL server in the settings.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// The timeout for connecting to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The idle time after which a connection is probed, and the time without an answer after which it is given up.
const KEEPALIVE: Duration = Duration::from_secs(15);
const SILENCE: Duration = Duration::from_secs(20);

/// A PostgreSQL address such as `postgres://user:password@host/database`, with the supported parameters of libpq. It is
/// never printed with its password.
#[derive(Clone)]
pub struct StoreUrl {
    pub(crate) config: Config,
    pub(crate) tls: Tls,
}

/// The required encryption of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) trust: Trust,
    /// The file with the trusted root certificates; `None` for those of the system.
    pub(crate) root: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// `disable`, `prefer` (the default for a server on this machine) and `require` (the default for others): encrypted or not, without checking the certificate.
    Anybody,
    /// `verify-ca`: the certificate must be signed by a trusted root.
    Certified,
    /// `verify-full`: the certificate must be signed by a trusted root and name the host.
    Named,
}

/// The reason why an address is invalid. It never repeats a part of the address, which could be the password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error("the URL must begin with postgres://")]
    OtherScheme,
    #[error("sslmode must be disable, prefer, require, verify-ca or verify-full")]
    SslMode,
    #[error(
        "the URL must have the form postgres://USER:PASSWORD@HOST/DATABASE?PARAMETERS; percent-encode special characters \
         in the password, and use only supported parameters"
    )]
    Malformed,
}

impl FromStr for StoreUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<StoreUrl, BadUrl> {
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(BadUrl::OtherScheme);
        }
        // A password may contain a question mark.
        let name = text.find('@').unwrap_or_default();
        let (place, parameters) = match text[name..].find('?') {
            Some(mark) => (&text[..name + mark], &text[name + mark + 1..]),
            None => (text, ""),
        };
        let mut tls = Tls { trust: Trust::Anybody, root: None };
        let mut mode = None;
        let mut kept = Vec::new();
        // The library supports neither the verifying modes nor a file of root certificates.
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslmode", word)) => {
                    (mode, tls.trust) = match word {
                        "disable" => (Some(SslMode::Disable), Trust::Anybody),
                        "prefer" => (Some(SslMode::Prefer), Trust::Anybody),
                        "require" => (Some(SslMode::Require), Trust::Anybody),
                        "verify-ca" => (Some(SslMode::Require), Trust::Certified),
                        "verify-full" => (Some(SslMode::Require), Trust::Named),
                        _ => return Err(BadUrl::SslMode),
                    };
                }
                Some(("sslrootcert", path)) => {
                    tls.root = Some(decoded(path).ok_or(BadUrl::Malformed)?.into());
                }
                _ => kept.push(parameter),
            }
        }
        let mut rest = place.to_owned();
        if !kept.is_empty() {
            rest.push('?');
            rest.push_str(&kept.join("&"));
        }
        let mut config: Config = rest.parse().map_err(|_| BadUrl::Malformed)?;
        if config.get_hosts().is_empty() {
            return Err(BadUrl::Malformed);
        }
        let default = if is_local(&config) { SslMode::Prefer } else { SslMode::Require };
        config.ssl_mode(mode.unwrap_or(default));
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("hob");
        }
        config.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE / 5).keepalives_retries(3);
        config.tcp_user_timeout(SILENCE);
        // Of several hosts, connect to the one that accepts writes.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        Ok(StoreUrl { config, tls })
    }
}

impl StoreUrl {
    /// Returns whether data may go over a network in clear: the server is not on this machine, and TLS is not required.
    pub fn may_be_clear(&self) -> bool {
        self.config.get_ssl_mode() != SslMode::Require && !is_local(&self.config)
    }
}

/// Returns whether all hosts are on this machine.
fn is_local(config: &Config) -> bool {
    let is_loopback = |name: &str| match name.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => name == "localhost",
    };
    // An address decides where a connection goes, and the name is then only compared with the certificate.
    let addresses = config.get_hostaddrs();
    if !addresses.is_empty() {
        return addresses.iter().all(IpAddr::is_loopback);
    }
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => is_loopback(name),
        Host::Unix(_) => true,
    })
}

/// Shows the user, the hosts and the database.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}@", self.config.get_user().unwrap_or_default())?;
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let ports = self.config.get_ports();
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => write!(f, "{comma}{name}:{port}")?,
                Host::Unix(path) => write!(f, "{comma}{}", path.display())?,
            }
        }
        write!(f, "/{}", self.config.get_dbname().unwrap_or_default())
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

/// Decodes percent escapes.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_understood_and_the_password_is_never_shown() {
        let text = "postgres://me:s3cret%2F@db.example:5433/hob?sslmode=verify-full\
                    &sslrootcert=/etc/my%20ca.pem&connect_timeout=2";
        let url: StoreUrl = text.parse().unwrap();
        assert_eq!(url.to_string(), "postgres://me@db.example:5433/hob");
        assert!(!format!("{url:?}").contains("s3cret"));
        assert_eq!(url.config.get_password(), Some(&b"s3cret/"[..]));
        assert_eq!(url.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(url.config.get_connect_timeout(), Some(&Duration::from_secs(2)));
        let root = Some(PathBuf::from("/etc/my ca.pem"));
        assert_eq!(url.tls, Tls { trust: Trust::Named, root });
        let plain: StoreUrl = "postgresql://me@%2Frun%2Fpg/hob".parse().unwrap();
        assert_eq!(plain.to_string(), "postgres://me@/run/pg/hob");
        assert_eq!(plain.config.get_ssl_mode(), SslMode::Prefer);
        assert_eq!(plain.config.get_connect_timeout(), Some(&CONNECT_TIMEOUT));
        let odd: StoreUrl = "postgres://u:pa?ss=word@h/d?sslmode=verify-full".parse().unwrap();
        assert_eq!(odd.config.get_password(), Some(&b"pa?ss=word"[..]));
        assert_eq!(odd.tls.trust, Trust::Named);
    }

    #[test]
    fn only_a_server_on_this_machine_may_be_used_in_clear() {
        let check = |text: &str, mode: SslMode, may_be_clear: bool| {
            let url: StoreUrl = text.parse().unwrap();
            assert_eq!(
                (url.config.get_ssl_mode(), url.may_be_clear()),
                (mode, may_be_clear),
                "{text}"
            );
        };
        check("postgres://u@127.0.0.1/d", SslMode::Prefer, false);
        check("postgres://u@localhost/d?sslmode=disable", SslMode::Disable, false);
        check("postgres://u@[::1]/d", SslMode::Prefer, false);
        check("postgres://u@%2Frun%2Fpg/d", SslMode::Prefer, false);
        check("postgres://u@db.example/d", SslMode::Require, false);
        check("postgres://u@db.example/d?sslmode=prefer", SslMode::Prefer, true);
        check("postgres://u@db.example/d?sslmode=disable", SslMode::Disable, true);
        check("postgres://u@localhost,db.example/d?sslmode=disable", SslMode::Disable, true);
        check("postgres://u@localhost/d?sslmode=disable&hostaddr=10.0.0.1", SslMode::Disable, true);
    }

    #[test]
    fn what_is_wrong_is_said_without_repeating_it() {
        for (text, why) in [
            ("", BadUrl::OtherScheme),
            ("sqlite:///x", BadUrl::OtherScheme),
            ("postgres://u:pa?s3cret=x@h/d?s3cret=x", BadUrl::Malformed),
            ("postgres://u:p@h/d?sslmode=maybe", BadUrl::SslMode),
            ("postgres://u:p@h:port/d", BadUrl::Malformed),
            ("postgres:///d", BadUrl::Malformed),
            ("postgres://u:p@h/d?sslrootcert=%zz", BadUrl::Malformed),
        ] {
            let error = text.parse::<StoreUrl>().unwrap_err();
            assert_eq!(error, why, "{text}");
            assert!(!error.to_string().contains("s3cret"));
        }
    }
}
