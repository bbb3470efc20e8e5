//! Logs: everything into a file that rotates, what a person must see on standard error.

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::home::Home;

/// How many days of logs are kept.
const DAYS: usize = 7;
/// How many lines wait at most for whoever reads standard error. There is a place in memory for each from the start.
const LINES: usize = 4096;

/// Starts logging for `hob serve`, until the returned value is dropped. `level` is a level or a list of
/// `target=level`.
pub fn start(home: &Home, level: &str) -> anyhow::Result<WorkerGuard> {
    // Whoever does not read standard error must not hold us up: then lines are lost there, not in the file.
    let (stderr, guard) =
        NonBlockingBuilder::default().buffered_lines_limit(LINES).finish(std::io::stderr());
    let file = RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix("hob")
        .filename_suffix("log")
        .max_log_files(DAYS)
        .build(home.logs())?;
    let to_file =
        fmt::layer().json().with_writer(file).with_filter(EnvFilter::try_new(level).map_err(
            |error| anyhow::anyhow!("log: {level:?} is not a level such as info or debug: {error}"),
        )?);
    let to_stderr = fmt::layer()
        .with_writer(stderr)
        .with_ansi(false)
        .with_target(false)
        .with_filter(LevelFilter::WARN);
    tracing_subscriber::registry().with(to_file).with(to_stderr).init();
    Ok(guard)
}
