//! The console at `/`: a page and its files, embedded at build time.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hob_domain::secret::hex;

use crate::error::{ApiError, ErrorBody};

/// One embedded file.
struct File {
    /// As it is asked for, with the slash.
    path: &'static str,
    bytes: &'static [u8],
    gzip: Option<&'static [u8]>,
    etag: &'static str,
}

/// The table of all files, made by `build.rs`.
mod files {
    use super::File;
    include!(concat!(env!("OUT_DIR"), "/console_files.rs"));
}

/// What stands in the page where the nonce of its styles belongs.
const PLACEHOLDER: &str = "__HOB_NONCE__";
/// Files with a digest in their name never change.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// Serves the console's page.
#[utoipa::path(get, path = "/", tag = "console", operation_id = "console_page", responses(
    (status = 200, description = "The page.", body = String, content_type = "text/html"),
    (status = 403, description = "Unknown Host header.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn page() -> Result<Response, ApiError> {
    let file = find("/index.html")?;
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| ApiError::Internal(error.to_string()))?;
    let nonce = hex(&random);
    let text = String::from_utf8_lossy(file.bytes).replace(PLACEHOLDER, &nonce);
    let mut response = text.into_response();
    let headers = response.headers_mut();
    protect(headers, &format!("'self' 'nonce-{nonce}'"));
    set(headers, CONTENT_TYPE, "text/html; charset=utf-8");
    set(headers, CACHE_CONTROL, "no-store");
    Ok(response)
}

/// Serves a file of the console.
#[utoipa::path(get, path = "/assets/{file}", tag = "console", operation_id = "console_file",
    params(("file" = String, Path, description = "The name.")), responses(
    (status = 200, description = "The file.", body = String, content_type = "application/octet-stream"),
    (status = 304, description = "Not modified."),
    (status = 403, description = "Unknown Host header.", body = ErrorBody),
    (status = 404, description = "No such file.", body = ErrorBody),
))]
pub(crate) async fn asset(request: Request) -> Result<Response, ApiError> {
    Ok(answer(find(request.uri().path())?, FOR_EVER, request.headers()))
}

/// Serves the console's icon.
#[utoipa::path(get, path = "/favicon.svg", tag = "console", operation_id = "console_icon", responses(
    (status = 200, description = "The icon.", body = String, content_type = "image/svg+xml"),
    (status = 304, description = "Not modified."),
    (status = 403, description = "Unknown Host header.", body = ErrorBody),
    (status = 404, description = "No such file.", body = ErrorBody),
))]
pub(crate) async fn icon(request: Request) -> Result<Response, ApiError> {
    Ok(answer(find("/favicon.svg")?, "no-cache", request.headers()))
}

fn find(path: &str) -> Result<&'static File, ApiError> {
    let found = files::FILES.iter().find(|file| file.path == path);
    found.ok_or_else(|| ApiError::NotFound("no such path".to_owned()))
}

fn answer(file: &'static File, cache: &'static str, asked: &HeaderMap) -> Response {
    let known = |name: HeaderName, word: &str| {
        let values = asked.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values
            .flat_map(|value| value.split(','))
            .any(|part| part.split(';').next().unwrap_or_default().trim() == word)
    };
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    protect(headers, "'self'");
    set(headers, CACHE_CONTROL, cache);
    set(headers, ETAG, file.etag);
    set(headers, VARY, "accept-encoding");
    if known(IF_NONE_MATCH, file.etag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    set(headers, CONTENT_TYPE, content_type(file.path));
    let body = match file.gzip.filter(|_| known(ACCEPT_ENCODING, "gzip")) {
        Some(small) => {
            set(headers, CONTENT_ENCODING, "gzip");
            small
        }
        None => file.bytes,
    };
    *response.body_mut() = Body::from(Bytes::from_static(body));
    response
}

/// What keeps a page to itself: nothing from elsewhere, nothing inline, no frame around it.
fn protect(headers: &mut HeaderMap, styles: &str) {
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src {styles}; img-src 'self' data:; \
         font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; \
         frame-ancestors 'none'"
    );
    set(headers, CONTENT_SECURITY_POLICY, &policy);
    set(headers, X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(headers, REFERRER_POLICY, "no-referrer");
    set(headers, X_FRAME_OPTIONS, "DENY");
    set(headers, HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(headers, HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "html" => "text/html; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" | "map" => "application/json",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_a_page() {
        let page = find("/index.html").expect("a page");
        assert!(String::from_utf8_lossy(page.bytes).contains(PLACEHOLDER));
        assert!(find("/assets/../index.html").is_err() && find("/assets/").is_err());
    }

    /// A file is sent once; then it is known.
    #[test]
    fn what_is_known_is_not_sent_again() {
        let file: &'static File = Box::leak(Box::new(File {
            path: "/assets/a-1234.js",
            bytes: b"1;1;1;1;",
            gzip: Some(b"small"),
            etag: "\"7\"",
        }));
        let ask = |pairs: &[(HeaderName, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(name.clone(), value.parse().unwrap());
            }
            answer(file, FOR_EVER, &headers)
        };
        let whole = ask(&[]);
        assert_eq!(whole.status(), 200);
        assert_eq!(whole.headers()[CONTENT_TYPE], "text/javascript; charset=utf-8");
        assert!(!whole.headers().contains_key(CONTENT_ENCODING));
        let small = ask(&[(ACCEPT_ENCODING, "deflate, gzip;q=0.9")]);
        assert_eq!(small.headers()[CONTENT_ENCODING], "gzip");
        let known = ask(&[(IF_NONE_MATCH, "\"6\", \"7\"")]);
        assert_eq!(known.status(), 304);
        assert!(known.headers().contains_key(CONTENT_SECURITY_POLICY));
    }
}
