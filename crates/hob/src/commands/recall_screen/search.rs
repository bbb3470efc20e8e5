//! Reads keys, runs searches beside them, and draws.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use console::{Key, Term};
use hob_mcp::Hit;

use super::layout::draw;
use super::state::{Next, Query, State};
use crate::raw_terminal::{self, RawTerminal, ScreenChoice};
use crate::view::View;

/// How often the size of the terminal is read without a key.
const RESIZE_INTERVAL: Duration = Duration::from_millis(300);

/// What happens while the screen is open.
enum Event {
    Key(Key),
    /// The terminal is gone.
    Closed,
    Answer(Query, Result<Vec<Hit>, String>),
}

/// Searches with `search` while the user types, beginning with `words`. Returns the hit that the user chose.
pub fn run(
    words: String,
    search: impl Fn(&Query) -> Result<Vec<Hit>, String> + Send,
) -> anyhow::Result<Option<Hit>> {
    if !RawTerminal::is_available() {
        anyhow::bail!("--interactive needs a terminal");
    }
    let (events, received) = mpsc::channel();
    let (queries, waiting) = mpsc::channel();
    let keys = events.clone();
    // It ends with the process: nothing can interrupt its read.
    thread::spawn(move || read_keys(&keys));
    thread::scope(|scope| {
        scope.spawn(move || answer(&waiting, &events, search));
        show(words, &received, queries)
    })
}

/// Draws and handles events until the user leaves. Drops the sender of queries then, which ends the thread that answers
/// them.
fn show(
    words: String,
    events: &Receiver<Event>,
    queries: Sender<Query>,
) -> anyhow::Result<Option<Hit>> {
    let terminal = RawTerminal::enter(ScreenChoice::Alternate)?;
    let mut state = State::new(words);
    if !state.query().words.is_empty() {
        state.is_searching = true;
        queries.send(state.query())?;
    }
    let mut drawn = None;
    loop {
        let size = raw_terminal::size();
        let screen = draw(&mut state, &View::of_stdout(), size);
        if drawn.as_ref() != Some(&screen) {
            terminal.write(screen.as_bytes())?;
            drawn = Some(screen);
        }
        let next = match events.recv_timeout(RESIZE_INTERVAL) {
            Ok(Event::Key(key)) => state.press(&key),
            Ok(Event::Answer(query, answer)) => {
                state.show(&query, answer);
                Next::Draw
            }
            Ok(Event::Closed) | Err(RecvTimeoutError::Disconnected) => Next::Quit,
            Err(RecvTimeoutError::Timeout) => Next::Draw,
        };
        match next {
            Next::Draw => {}
            Next::Search(query) => queries.send(query)?,
            Next::Print(hit) => return Ok(Some(*hit)),
            Next::Quit => return Ok(None),
        }
    }
}

fn read_keys(events: &Sender<Event>) {
    let terminal = Term::stdout();
    loop {
        let event = terminal.read_key_raw().map_or(Event::Closed, Event::Key);
        let is_last = matches!(event, Event::Closed);
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

/// Answers the newest query. Older ones that wait are not wanted any more.
fn answer(
    queries: &Receiver<Query>,
    events: &Sender<Event>,
    search: impl Fn(&Query) -> Result<Vec<Hit>, String>,
) {
    while let Ok(query) = queries.recv() {
        let query = queries.try_iter().last().unwrap_or(query);
        let answer = search(&query);
        if events.send(Event::Answer(query, answer)).is_err() {
            return;
        }
    }
}
