//! Compiles SQLCipher, one C file from the `sqlcipher-src` crate, with Hob's own provider of cryptography.

#![allow(
    clippy::disallowed_methods,
    reason = "a build reads and writes files that no agent can change"
)]

use std::path::{Path, PathBuf};

/// Changes to SQLCipher: what each one replaces, and by what.
///
/// SQLCipher answers a read of a damaged page with a page of zeros. SQLite notices this in a page of a tree. It does not in
/// the last of the pages that continue a long row: the row is read, with zeros in place of its end, and without an error.
/// With these changes the read fails, and only this one: other pages stay readable. An error of the disk stays what it is.
/// On the first page nothing changes, because there the zeros are how SQLite learns that the key is wrong.
///
/// SQLite calls itself ready before SQLCipher is. A thread that opened its first file in between was told that its key is
/// wrong in form. With the last change it waits until SQLCipher is ready.
const CHANGES: [(&str, &str); 4] = [
    (
        "          sqlcipher_codec_ctx_set_error(ctx, rc);
        }
      } else {
        SQLCIPHER_FLAG_SET(ctx->flags, CIPHER_FLAG_KEY_USED);
      }
      memcpy(pData",
        "          if(pgno != 1) goto cleanup;
          sqlcipher_codec_ctx_set_error(ctx, rc);
        }
      } else {
        SQLCIPHER_FLAG_SET(ctx->flags, CIPHER_FLAG_KEY_USED);
      }
      memcpy(pData",
    ),
    ("    if(mode == CODEC_READ_OP) {", "    if(mode == CODEC_READ_OP && pgno == 1) {"),
    (
        "CODEC1(pPager, pPg->pData, pPg->pgno, 3, rc = SQLITE_NOMEM_BKPT);",
        "CODEC1(pPager, pPg->pData, pPg->pgno, 3,
    if( rc==SQLITE_OK ) rc = (pPg->pgno==1 ? SQLITE_NOMEM_BKPT : SQLITE_CORRUPT_BKPT));",
    ),
    (
        "%s: db=%p, nDb=%d\", __func__, db, nDb);

  if(!sqlcipher_init) {",
        "%s: db=%p, nDb=%d\", __func__, db, nDb);

  if(!sqlcipher_shutdown) sqlcipher_extra_init(NULL);
  if(!sqlcipher_init) {",
    ),
];

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let sources = sqlcipher_src::source_dir();
    let original = sources.join(sqlcipher_src::SOURCE_FILE);
    println!("cargo:rerun-if-changed={}", original.display());
    println!("cargo:rerun-if-changed=build.rs");
    let file = out.join("sqlcipher.c");
    change(&original, &file);

    let mut build = cc::Build::new();
    build.file(&file).include(sources).warnings(false);
    // Without optimization tests would take several times as long; more than the first level doubles the time of a build.
    if std::env::var("PROFILE").as_deref() == Ok("debug") {
        build.opt_level(1);
    }
    for (name, value) in [
        ("SQLITE_CORE", None),
        ("SQLITE_DEFAULT_FOREIGN_KEYS", Some("1")),
        ("SQLITE_ENABLE_API_ARMOR", None),
        // Homes of earlier versions have a table of this module.
        ("SQLITE_ENABLE_FTS5", None),
        ("SQLITE_ENABLE_STAT4", None),
        ("SQLITE_OMIT_LOAD_EXTENSION", None),
        ("SQLITE_THREADSAFE", Some("1")),
        ("SQLITE_USE_URI", None),
        ("HAVE_ISNAN", None),
        ("HAVE_LOCALTIME_R", None),
        ("HAVE_STDINT_H", Some("1")),
        ("HAVE_USLEEP", Some("1")),
        // What SQLCipher requires.
        ("SQLITE_HAS_CODEC", None),
        ("SQLITE_TEMP_STORE", Some("2")),
        ("SQLITE_EXTRA_INIT", Some("sqlcipher_extra_init")),
        ("SQLITE_EXTRA_SHUTDOWN", Some("sqlcipher_extra_shutdown")),
        // The function in src/lib.rs that names the provider's functions.
        ("SQLCIPHER_CRYPTO_CUSTOM", Some("hob_sqlcipher_provider")),
        ("SQLCIPHER_OMIT_LOG_DEVICE", None),
    ] {
        build.define(name, value);
    }
    build.cargo_metadata(false).compile("sqlcipher");
    println!("cargo:rustc-link-search=native={}", out.display());
    // `libsqlite3-sys` does not know this library, so the linker has to take all of it, wherever it stands among the
    // others. It drops what is not used.
    println!("cargo:rustc-link-lib=static:+whole-archive=sqlcipher");
}

/// Writes a copy of the source with the changes. Each must apply at exactly one place.
fn change(original: &Path, to: &Path) {
    let source = std::fs::read_to_string(original).expect("the source of SQLCipher can be read");
    let changed = CHANGES.iter().fold(source, |source, (before, after)| {
        let places = source.matches(before).count();
        assert_eq!(
            places, 1,
            "this SQLCipher needs other changes: {before:?} occurs {places} times"
        );
        source.replace(before, after)
    });
    std::fs::write(to, changed).expect("the changed source can be written");
}
