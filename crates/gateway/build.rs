//! Builds the console (`console/`, TypeScript) and generates a table of its files, which `console.rs`
//! embeds.
//!
//! A build without Node embeds a plain page that says how to get the console. `HOB_CONSOLE` decides: unset,
//! the console is built if possible; `skip` never builds it; `build` fails if it cannot be built.
#![allow(clippy::disallowed_methods, reason = "a build runs the tools it needs")]

use std::collections::hash_map::DefaultHasher;
use std::error::Error;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sources of the console. Only these are watched, because tools may leave other files next to them.
const SOURCES: [&str; 7] = [
    "index.html",
    "package.json",
    "package-lock.json",
    "public",
    "src",
    "tsconfig.json",
    "vite.config.ts",
];
/// Compresses every file below the folder that gets smaller, next to the original.
const COMPRESS: &str = "
const fs = require('fs'), path = require('path'), zlib = require('zlib');
const walk = (folder) => {
  for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) { walk(file); continue; }
    const bytes = fs.readFileSync(file);
    const small = zlib.gzipSync(bytes, { level: 9 });
    if (small.length < bytes.length * 0.9) fs.writeFileSync(file + '.gz', small);
  }
};
walk(process.argv[1]);
";

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let (console, built) = (here.join("../../console"), out.join("console"));
    println!("cargo::rerun-if-env-changed=HOB_CONSOLE");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=console-missing.html");
    for source in SOURCES {
        // Cargo treats a missing file as changed every time. That is right for the manifest: the build
        // notices when it appears.
        let source = console.join(source);
        if source.exists() || source.ends_with("package.json") {
            println!("cargo::rerun-if-changed={}", source.display());
        }
    }
    let wanted = std::env::var("HOB_CONSOLE").unwrap_or_default();
    let result = match wanted.as_str() {
        "skip" => Err("HOB_CONSOLE=skip".into()),
        _ if !console.join("package.json").exists() => Err("there is no console/ folder".into()),
        _ => build(&console, &built),
    };
    match result {
        Ok(()) => {}
        Err(error) if wanted == "build" => return Err(error),
        Err(error) => {
            if wanted != "skip" {
                println!(
                    "cargo::warning=the console is not built ({error}); with Node 20 or newer, build again \
                     with HOB_CONSOLE=build"
                );
            }
            let _ = fs::remove_dir_all(&built);
            fs::create_dir_all(&built)?;
            fs::copy(here.join("console-missing.html"), built.join("index.html"))?;
        }
    }
    fs::write(out.join("console_files.rs"), table(&built)?)?;
    Ok(())
}

/// Installs the npm packages if the lock file changed, and builds.
fn build(console: &Path, built: &Path) -> Result<(), Box<dyn Error>> {
    // Several builds may run at once with their own target folders; they share the installed packages.
    let lock_file = console.join("package-lock.json");
    let lock = File::open(&lock_file)?;
    lock.lock()?;
    if !is_installed(console) {
        let install = ["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1"];
        run(Command::new("npm").args(install).current_dir(console))?;
        fs::copy(&lock_file, console.join("node_modules/.hob-lock.json"))?;
    }
    let mut vite = Command::new("npm");
    vite.args(["run", "--silent", "build", "--", "--emptyOutDir", "--outDir"]).arg(built);
    run(vite.current_dir(console))?;
    if !built.join("index.html").exists() {
        return Err("the console's build made no page".into());
    }
    run(Command::new("node").arg("-e").arg(COMPRESS).arg(built))
}

/// Returns whether the packages were installed after the lock file changed.
fn is_installed(console: &Path) -> bool {
    let (lock, packages) = (console.join("package-lock.json"), console.join("node_modules"));
    let ours = fs::read(packages.join(".hob-lock.json"));
    if ours.is_ok_and(|ours| fs::read(&lock).is_ok_and(|lock| lock == ours)) {
        return true;
    }
    let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let theirs = changed(&packages.join(".package-lock.json"));
    theirs.is_some_and(|theirs| changed(&lock).is_some_and(|lock| theirs >= lock))
}

fn run(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name} can't be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(6)..].join("; ");
    Err(format!("{name} failed: {last}").into())
}

/// Generates the table: path, bytes, compressed bytes, and a digest for `ETag`.
fn table(built: &Path) -> Result<String, Box<dyn Error>> {
    let mut files = Vec::new();
    walk(built, &mut files)?;
    files.sort();
    let mut source = "const FILES: &[File] = &[\n".to_owned();
    for file in files.iter().filter(|file| file.extension().is_none_or(|ending| ending != "gz")) {
        let bytes = fs::read(file)?;
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let path = file.strip_prefix(built)?.to_str().ok_or("a name that is no text")?;
        let small = PathBuf::from(format!("{}.gz", file.display()));
        let small = match small.exists() {
            true => format!("Some(include_bytes!({small:?}))"),
            false => "None".to_owned(),
        };
        writeln!(
            source,
            "    File {{ path: {:?}, bytes: include_bytes!({file:?}), gzip: {small}, etag: \"\\\"{:016x}\\\"\" }},",
            format!("/{path}"),
            hasher.finish(),
        )?;
    }
    source.push_str("];\n");
    Ok(source)
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => walk(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}
