//! Compiles SQLCipher, one C file from the `sqlcipher-src` crate, with Hob's own provider of cryptography.

fn main() {
    let sources = sqlcipher_src::source_dir();
    let file = sources.join(sqlcipher_src::SOURCE_FILE);
    println!("cargo:rerun-if-changed={}", file.display());

    let mut build = cc::Build::new();
    build.file(&file).warnings(false);
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
    println!(
        "cargo:rustc-link-search=native={}",
        std::env::var("OUT_DIR").expect("cargo sets OUT_DIR")
    );
    // `libsqlite3-sys` does not know this library, so the linker has to take all of it, wherever it stands among the
    // others. It drops what is not used.
    println!("cargo:rustc-link-lib=static:+whole-archive=sqlcipher");
}
