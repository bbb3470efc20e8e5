//! What keeps other web pages out. The console's cookie goes along with every request a browser makes to
//! us, whoever wrote the page that makes it; so requests are looked at for where they come from.
//!
//! A page elsewhere may point a name of its own at this machine (DNS rebinding): then it is the same origin
//! to the browser. So only names we know are answered.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;
use crate::owner::Owner;
use crate::state::Gateway;

/// Refuses requests to the console and to `/admin` under a strange name, and those that another origin's
/// page makes to change something or to open a socket.
pub(crate) async fn guard(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let owner = request.extensions().get::<Owner>().is_some();
    if !owner && is_guarded(request.uri().path()) {
        let headers = request.headers();
        let host = host(headers, request.uri().authority());
        let Some(host) = host.filter(|host| host.is_ours(&gateway.hosts)) else {
            return ApiError::BadHost.into_response();
        };
        let changes = !request.method().is_safe() || is_upgrade(headers);
        if changes && headers.contains_key(header::ORIGIN) && !is_own_origin(headers, &host) {
            return ApiError::BadOrigin.into_response();
        }
    }
    let private = below("/admin", request.uri().path());
    let mut response = next.run(request).await;
    if private {
        // What is said here is for this one caller, and never to be taken for a page.
        let headers = response.headers_mut();
        let no_store = HeaderValue::from_static("no-store");
        headers.entry(header::CACHE_CONTROL).or_insert(no_store);
        let no_guess = HeaderValue::from_static("nosniff");
        headers.entry(header::X_CONTENT_TYPE_OPTIONS).or_insert(no_guess);
    }
    response
}

/// Whether a request with the console's cookie was made by the console: a browser says so wherever
/// something could happen.
pub(crate) fn came_from_console(parts: &Parts, hosts: &[String]) -> Result<(), ApiError> {
    let headers = &parts.headers;
    let host = host(headers, parts.uri.authority()).filter(|host| host.is_ours(hosts));
    let host = host.ok_or(ApiError::BadHost)?;
    let changes = !matches!(parts.method, Method::GET | Method::HEAD) || is_upgrade(headers);
    // Newer browsers say it of every request; other ports of this machine are the same site, not the same
    // origin.
    let from = headers.get("sec-fetch-site").map(|value| value.as_bytes());
    let elsewhere = from.is_some_and(|from| from != b"same-origin" && from != b"none");
    if elsewhere || changes && !is_own_origin(headers, &host) {
        return Err(ApiError::BadOrigin);
    }
    Ok(())
}

fn is_guarded(path: &str) -> bool {
    matches!(path, "/" | "/favicon.svg" | "/admin")
        || below("/admin", path)
        || below("/assets", path)
}

fn below(folder: &str, path: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
}

/// A name and a port as a request gives them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Host {
    /// In lower case, without the brackets of an address.
    name: String,
    port: Option<u16>,
    is_address: bool,
}

impl Host {
    fn parse(text: &str) -> Option<Host> {
        // The library reads what stands in an address of the web; who is asked has no user.
        let authority: Authority = text.parse().ok()?;
        if text.contains('@') {
            return None;
        }
        let port = match text.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
            Some(_) => Some(authority.port_u16()?),
            None => None,
        };
        let name = authority.host();
        if let Some(inner) = name.strip_prefix('[') {
            let address: Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
            return Some(Host { name: address.to_string(), port, is_address: true });
        }
        let is_address = name.parse::<IpAddr>().is_ok();
        (!name.is_empty()).then(|| Host { name: name.to_ascii_lowercase(), port, is_address })
    }

    /// Nobody else can make a browser take an address for his name, nor `localhost` by any name.
    fn is_ours(&self, named: &[String]) -> bool {
        self.is_address
            || self.name == "localhost"
            || self.name.ends_with(".localhost")
            || named.iter().any(|name| name.eq_ignore_ascii_case(&self.name))
    }
}

/// The one host a request names. Two are none: who reads the first and who reads the last would differ.
fn host(headers: &HeaderMap, target: Option<&Authority>) -> Option<Host> {
    let mut named = headers.get_all(header::HOST).iter();
    let (first, second) = (named.next()?, named.next());
    let host = second.is_none().then(|| Host::parse(first.to_str().ok()?)).flatten()?;
    // The address in the request line counts for proxies; it must not say something else.
    let same = target.is_none_or(|target| Host::parse(target.as_str()).as_ref() == Some(&host));
    same.then_some(host)
}

/// Whether `Origin` is there and is the host that is asked.
fn is_own_origin(headers: &HeaderMap, host: &Host) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else { return false };
    let parts = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let usual = match parts {
        Some(("http", _)) => 80,
        Some(("https", _)) => 443,
        _ => return false,
    };
    let Some(origin) = parts.and_then(|(_, rest)| Host::parse(rest)) else { return false };
    let same_port = origin.port.unwrap_or(usual) == host.port.unwrap_or(usual);
    origin.name == host.name && same_port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_ours() {
        let named = ["hob.example.org".to_owned()];
        let ours = |text: &str| Host::parse(text).is_some_and(|host| host.is_ours(&named));
        for good in [
            "localhost",
            "LOCALHOST:7717",
            "a.localhost:1",
            "127.0.0.1",
            "127.0.0.1:7717",
            "192.168.1.4:80",
            "[::1]",
            "[::1]:7717",
            "hob.example.org",
            "Hob.Example.org:443",
        ] {
            assert!(ours(good), "{good}");
        }
        for bad in [
            "",
            "evil.com",
            "localhost.evil.com",
            "127.0.0.1.nip.io",
            "127.0.0.1.nip.io:7717",
            "notlocalhost",
            "hob.example.org.evil.com",
            "x.hob.example.org",
            "localhost@evil.com",
            "evil.com@localhost",
            "localhost:",
            "localhost:x",
            "localhost:99999",
            "localhost evil.com",
            "[::1].evil.com",
            "[evil.com]",
            "evil.com:80@127.0.0.1",
            "localhost/evil.com",
            "localhost#",
            "127.1",
            ".",
        ] {
            assert!(!ours(bad), "{bad}");
        }
    }

    #[test]
    fn an_origin_is_a_name_and_a_port() {
        let check = |origin: &str, asked: &str, expect: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, origin.parse().unwrap());
            let host = Host::parse(asked).unwrap();
            assert_eq!(is_own_origin(&headers, &host), expect, "{origin} {asked}");
        };
        check("http://localhost:7717", "localhost:7717", true);
        check("http://LOCALHOST:7717", "localhost:7717", true);
        check("https://hob.example.org", "hob.example.org", true);
        check("https://hob.example.org", "hob.example.org:443", true);
        check("http://[::1]:7717", "[::1]:7717", true);
        check("http://localhost", "localhost:7717", false);
        check("http://localhost:3000", "localhost:7717", false);
        check("http://127.0.0.1:7717", "localhost:7717", false);
        check("https://evil.com", "localhost:7717", false);
        check("null", "localhost:7717", false);
        check("file://localhost:7717", "localhost:7717", false);
        check("http://localhost:7717.evil.com", "localhost:7717", false);
        check("http://localhost:7717@evil.com", "localhost:7717", false);
    }

    #[test]
    fn two_hosts_are_none() {
        let mut headers = HeaderMap::new();
        assert_eq!(host(&headers, None), None);
        headers.append(header::HOST, "localhost".parse().unwrap());
        assert!(host(&headers, None).is_some());
        assert!(host(&headers, Some(&"localhost".parse().unwrap())).is_some());
        assert!(host(&headers, Some(&"evil.com".parse().unwrap())).is_none());
        headers.append(header::HOST, "evil.com".parse().unwrap());
        assert_eq!(host(&headers, None), None);
    }

    #[test]
    fn what_is_guarded() {
        for path in ["/", "/admin", "/admin/", "/admin/apps", "/assets/x.js", "/favicon.svg"] {
            assert!(is_guarded(path), "{path}");
        }
        for path in ["/healthz", "/run", "/sessions", "/administrator", "/mcp", "/v1/messages"] {
            assert!(!is_guarded(path), "{path}");
        }
    }
}
