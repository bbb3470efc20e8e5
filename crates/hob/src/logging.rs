//! Logs: everything goes into a file that rotates daily, warnings and errors also to standard
//! error.

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::filter::{EnvFilter, LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::home::Home;

/// How many daily log files are kept.
const MAX_LOG_FILES: usize = 7;
/// How many lines wait for the reader of standard error. The buffer is allocated at start.
const MAX_BUFFERED_LINES: usize = 4096;

/// Starts logging for `hob serve`, until the returned guard is dropped. `level` is a level or a
/// list of `target=level`.
pub fn start(home: &Home, level: &str) -> anyhow::Result<WorkerGuard> {
    // A reader of standard error that stops reading must not block the server. Lines are then lost
    // there, but not in the file.
    let (stderr, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(MAX_BUFFERED_LINES)
        .finish(std::io::stderr());
    let file = RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix("hob")
        .filename_suffix("log")
        .max_log_files(MAX_LOG_FILES)
        .build(home.logs())?;
    let filter = EnvFilter::try_new(level).map_err(|error| {
        anyhow::anyhow!(
            "log: {level:?} is not valid ({error}): use error, warn, info, debug, trace, or \
             comma-separated target=level pairs"
        )
    })?;
    let to_file = fmt::layer().json().with_writer(file).with_filter(filter);
    // The MCP library reports an agent that ended during a call as an error.
    let shown =
        Targets::new().with_default(LevelFilter::WARN).with_target("rmcp", LevelFilter::OFF);
    let to_stderr =
        fmt::layer().with_writer(stderr).with_ansi(false).with_target(false).with_filter(shown);
    tracing_subscriber::registry().with(to_file).with(to_stderr).init();
    Ok(guard)
}
