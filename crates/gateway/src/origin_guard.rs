//! The origin guard keeps other web pages out. A browser sends the console's cookie with every request to
//! this server, from any page. So the guard checks where a request comes from.
//!
//! Another site can point its own host name at this machine (DNS rebinding), and the browser then sees
//! one origin. So the guard answers only under known host names.

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

/// Refuses requests to the console and to `/admin` under an unknown host name, and requests from another
/// origin that change something or open a WebSocket. Refuses pages of unknown hosts at `/mcp` and `/acp`.
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
    let is_for_programs = matches!(request.uri().path(), "/mcp" | "/acp");
    if !owner && is_for_programs && !is_local_page(&request, &gateway.hosts) {
        return ApiError::BadOrigin.into_response();
    }
    let private = below("/admin", request.uri().path());
    let mut response = next.run(request).await;
    if private {
        // Responses are for this caller only, and a browser must not treat them as a page.
        let headers = response.headers_mut();
        let no_store = HeaderValue::from_static("no-store");
        headers.entry(header::CACHE_CONTROL).or_insert(no_store);
        let no_guess = HeaderValue::from_static("nosniff");
        headers.entry(header::X_CONTENT_TYPE_OPTIONS).or_insert(no_guess);
    }
    response
}

/// Returns whether a request comes from a program, or from a page of a known host. Pages of editors and of inspectors have
/// other ports.
fn is_local_page(request: &Request, hosts: &[String]) -> bool {
    let headers = request.headers();
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let (first, second) = (origins.next(), origins.next());
    let Some(origin) = first else { return true };
    let text = origin.to_str().ok().filter(|_| second.is_none());
    let page = text.and_then(|text| text.split_once("://")).and_then(|(_, rest)| Host::parse(rest));
    let host = host(headers, request.uri().authority());
    [page, host].iter().all(|host| host.as_ref().is_some_and(|host| host.is_ours(hosts)))
}

/// Checks that the console itself made a request with its cookie. Browsers state the origin of every
/// request that could change something.
pub(crate) fn came_from_console(parts: &Parts, hosts: &[String]) -> Result<(), ApiError> {
    let headers = &parts.headers;
    let host = host(headers, parts.uri.authority()).filter(|host| host.is_ours(hosts));
    let host = host.ok_or(ApiError::BadHost)?;
    let changes = !matches!(parts.method, Method::GET | Method::HEAD) || is_upgrade(headers);
    // Newer browsers send this with every request. Other ports of this machine are the same site, but
    // another origin.
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

/// The host name and port of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Host {
    /// In lower case, without the brackets of an address.
    name: String,
    port: Option<u16>,
    is_address: bool,
}

impl Host {
    fn parse(text: &str) -> Option<Host> {
        // The library accepts user information, which a Host header must not have.
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

    /// Returns whether the name is an IP address, `localhost` or a configured name. No other site can make a
    /// browser use these for itself.
    fn is_ours(&self, named: &[String]) -> bool {
        self.is_address
            || self.name == "localhost"
            || self.name.ends_with(".localhost")
            || named.iter().any(|name| name.eq_ignore_ascii_case(&self.name))
    }
}

/// Returns the host of a request. Two Host headers count as none, because readers disagree on which one
/// applies.
fn host(headers: &HeaderMap, target: Option<&Authority>) -> Option<Host> {
    let mut named = headers.get_all(header::HOST).iter();
    let (first, second) = (named.next()?, named.next());
    let host = second.is_none().then(|| Host::parse(first.to_str().ok()?)).flatten()?;
    // The authority in the request line is for proxies; it must agree with the header.
    let same = target.is_none_or(|target| Host::parse(target.as_str()).as_ref() == Some(&host));
    same.then_some(host)
}

/// Returns whether the request has an `Origin` that equals its host.
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
    fn host_guard_accepts_addresses_localhost_and_configured_names() {
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
    fn origin_matches_by_name_and_port() {
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
    fn two_host_headers_are_refused() {
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
    fn guard_covers_console_and_admin_paths() {
        for path in ["/", "/admin", "/admin/", "/admin/apps", "/assets/x.js", "/favicon.svg"] {
            assert!(is_guarded(path), "{path}");
        }
        for path in ["/healthz", "/run", "/sessions", "/administrator", "/mcp", "/v1/messages"] {
            assert!(!is_guarded(path), "{path}");
        }
    }
}
