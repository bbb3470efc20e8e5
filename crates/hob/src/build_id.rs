//! Which build of Hob this program is, and whether the running server is another one.

use std::path::Path;

use crate::socket::{Hello, client};

/// The digest of the sources that this program was built from, which `build.rs` computes.
pub const BUILD: &str = env!("HOB_BUILD");

/// How the user lets the server run this program.
pub const RESTART: &str = "restart the server with this version: `hob service install`, or `hob stop` and then `hob serve`";

/// Returns what distinguishes the running server from this program, or `None` if both are of one build.
pub fn other_build(hello: &Hello) -> Option<String> {
    difference(&hello.version, &hello.build)
        .map(|what| format!("the running server (pid {}) is {what}", hello.pid))
}

/// Returns whether a server of another build answers on this socket.
pub fn runs_other_build(socket: &Path) -> bool {
    client::hello(socket).is_ok_and(|hello| other_build(&hello).is_some())
}

/// Describes the build of a server as compared with this program. The earliest servers name no build.
fn difference(version: &str, build: &str) -> Option<String> {
    let own = env!("CARGO_PKG_VERSION");
    match (version == own, build) {
        (true, BUILD) => None,
        (true, "") => Some(format!("an older build of hob {own} than this program")),
        (true, _) => Some(format!("another build of hob {own} than this program")),
        (false, _) => Some(format!("hob {version}, and this program is hob {own}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(version: &str, build: &str, expect: Option<&str>) {
        let found = difference(version, build);
        match expect {
            None => assert_eq!(found, None),
            Some(expect) => {
                assert!(found.as_ref().is_some_and(|f| f.starts_with(expect)), "{found:?}")
            }
        }
    }

    #[test]
    fn servers_of_other_builds_are_recognised() {
        let own = env!("CARGO_PKG_VERSION");
        check(own, BUILD, None);
        check(own, "", Some("an older build"));
        check(own, "0123456789abcdef", Some("another build"));
        check("99.0.0", BUILD, Some("hob 99.0.0, and this program"));
        check("0.0.1", "", Some("hob 0.0.1, and this program"));
    }

    #[test]
    fn build_is_a_digest() {
        assert_eq!(BUILD.len(), 16);
        assert!(BUILD.bytes().all(|byte| byte.is_ascii_hexdigit()), "{BUILD}");
    }
}
