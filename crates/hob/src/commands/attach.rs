//! `hob attach`: shows the live terminal of an agent in the user's own terminal.

use std::io::{self, Read};

use clap::{Args as ClapArgs, ValueEnum};
use clap_complete::ArgValueCompleter;
use hob_gateway::client::{Client, Method};
use hob_gateway::web_socket::{self, Frame, WebSocket};
use hob_terminal::{Filter, FilterPolicy};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::candidates;
use super::{Context, Exit};
use crate::memory;
use crate::owner_client::{self, NotRunning};
use crate::printer::{self, errln, outln};
use crate::raw_terminal::{self, RawTerminal, ScreenChoice};

/// Watch the terminal of a live agent, and type into it
#[derive(ClapArgs)]
#[command(after_help = "\
IDs may be shortened to any unambiguous prefix. The first viewer to type becomes the writer until it leaves; \
--take takes over input. For an agent without a terminal, Hob shows its events. Hob filters the output: an agent \
cannot change your window title or clipboard, query your terminal, or draw images.

Exit code: 3 if the server is not running.")]
pub struct Args {
    /// ID of a live session or of a `/v1` process (an agent kept running for the `/v1` API), as `--list` shows it; if
    /// omitted, Hob lists all of them
    #[arg(add = ArgValueCompleter::new(candidates::sessions))]
    id: Option<String>,
    /// List live sessions and processes
    #[arg(long)]
    list: bool,
    /// With --list, print {"live":[…]}; with --screen, print the screen as a JSON object
    #[arg(long)]
    json: bool,
    /// Print the current screen and exit
    #[arg(long, requires = "id")]
    screen: bool,
    /// Output format for --screen
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Watch only: do not send keys, do not resize the agent's terminal
    #[arg(long)]
    read_only: bool,
    /// Take over input from the current writer
    #[arg(long, conflicts_with = "read_only")]
    take: bool,
    /// Key that detaches: `ctrl-` and a letter, or `ctrl-` and one of these six characters: `@[\]^_` (default: `ctrl-]`)
    #[arg(long, value_name = "KEY", default_value = "ctrl-]", hide_default_value = true)]
    #[arg(value_parser = detach_key)]
    detach_key: DetachKey,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Plain text
    Text,
    /// Text with escape sequences for colours
    Ansi,
    /// An SVG image
    Svg,
}

impl Format {
    fn as_str(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Ansi => "ansi",
            Format::Svg => "svg",
        }
    }
}

/// A detach key, as the byte that the terminal sends for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DetachKey(u8);

/// How a visit to a terminal ended.
enum VisitEnd {
    /// The user pressed the detach key, or a signal arrived.
    Detached,
    /// The server ended the visit and gave this reason.
    Ended(String),
    /// The connection broke with this error.
    Disconnected(String),
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let runtime = memory::runtime()?;
    let outcome = runtime.block_on(act(context, args));
    // A thread may still be waiting for a key.
    runtime.shutdown_background();
    match outcome {
        Err(error) if error.is::<NotRunning>() => {
            errln!("hob: {error}");
            Ok(Exit::WrongState)
        }
        outcome => outcome,
    }
}

async fn act(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let socket = &context.settings.socket;
    let mut client = owner_client::connect(socket).await?;
    let answer = owner_client::request(&mut client, Method::GET, "/admin/live", None).await?;
    let live = answer["live"].as_array().cloned().unwrap_or_default();
    let Some(id) = args.id.as_deref().filter(|_| !args.list) else {
        print_list(&live, args.json);
        return Ok(Exit::Done);
    };
    let id = resolve(&live, id)?;
    if args.screen {
        let format = if args.json { "json" } else { args.format.as_str() };
        let screen = screen(&mut client, &id, format).await?;
        printer::out_drawing(&screen);
        return Ok(Exit::Done);
    }
    if !RawTerminal::is_available() {
        anyhow::bail!(
            "attach needs a terminal; use --screen to print the current screen without one"
        );
    }
    let path = format!("/admin/live/{id}/attach?scrollback=0");
    let mut server = web_socket::open(owner_client::stream(socket)?, &path).await?;
    let end = watch(&mut server, args).await?;
    server.close().await;
    match end {
        VisitEnd::Detached => errln!("hob: detached from {id}; it keeps running"),
        VisitEnd::Ended(reason) => errln!("hob: {reason}"),
        VisitEnd::Disconnected(error) => {
            anyhow::bail!("lost the connection to the server: {error}")
        }
    }
    Ok(Exit::Done)
}

/// Shows the agent's terminal and sends keys until one side ends the visit. Always restores the
/// user's terminal.
async fn watch(server: &mut WebSocket<UnixStream>, args: &Args) -> anyhow::Result<VisitEnd> {
    let hello = match server.next().await? {
        Some(Frame::Text(text)) => serde_json::from_str::<Value>(&text).unwrap_or_default(),
        _ => anyhow::bail!(
            "the server did not answer the handshake; it may be an older version: restart it"
        ),
    };
    let has_terminal = hello["terminal"] == true;
    let mut signals = VisitSignals::new()?;
    let mut resized = signal(SignalKind::window_change())?;
    let screen = if has_terminal { ScreenChoice::Alternate } else { ScreenChoice::Shared };
    let terminal = RawTerminal::enter(screen)?;
    let mut keys = keys();
    let mut shown = Filter::new(FilterPolicy::OwnTerminal);
    if args.take {
        server.send(Frame::Text(json!({"type": "take"}).to_string())).await?;
    }
    let may_resize = has_terminal && !args.read_only;
    if may_resize {
        server.send(own_size()).await?;
    }
    // Shown after the first drawing, which would otherwise overwrite it.
    let mut notice = too_small(&hello).filter(|_| !may_resize);
    loop {
        tokio::select! {
            frame = server.next() => match frame {
                Ok(Some(Frame::Binary(bytes))) => {
                    terminal.write(&shown.pass(&bytes))?;
                    if let Some(notice) = notice.take() {
                        terminal.show_notice(&notice)?;
                    }
                }
                Ok(Some(Frame::Text(text))) => {
                    let message: Value = serde_json::from_str(&text).unwrap_or_default();
                    let text = |key: &str| message[key].as_str().unwrap_or_default().to_owned();
                    match message["type"].as_str() {
                        Some("end") => return Ok(VisitEnd::Ended(text("reason"))),
                        Some("refused") => terminal.show_notice(&text("reason"))?,
                        Some("size") => notice = too_small(&message),
                        _ => {}
                    }
                }
                Ok(None) => return Ok(VisitEnd::Disconnected("the server closed it".to_owned())),
                Err(error) => return Ok(VisitEnd::Disconnected(error.to_string())),
            },
            typed = keys.recv() => {
                let Some(typed) = typed else { return Ok(VisitEnd::Detached) };
                let leaves = typed.iter().position(|byte| *byte == args.detach_key.0);
                let typed = &typed[..leaves.unwrap_or(typed.len())];
                if !args.read_only && !typed.is_empty() {
                    server.send(Frame::Binary(typed.to_vec())).await?;
                }
                if leaves.is_some() {
                    return Ok(VisitEnd::Detached);
                }
            }
            _ = resized.recv() => {
                if may_resize {
                    server.send(own_size()).await?;
                }
            }
            () = signals.next() => return Ok(VisitEnd::Detached),
        }
    }
}

fn own_size() -> Frame {
    let size = raw_terminal::size();
    Frame::Text(json!({"type": "resize", "cols": size.cols, "rows": size.rows}).to_string())
}

/// Returns a notice if the agent's screen does not fit into the user's terminal.
fn too_small(theirs: &Value) -> Option<String> {
    let own = raw_terminal::size();
    let cells = |key: &str| theirs[key].as_u64().unwrap_or_default();
    let (cols, rows) = (cells("cols"), cells("rows"));
    let fits = u64::from(own.cols) >= cols && u64::from(own.rows) >= rows;
    (!fits).then(|| format!("the agent's screen is {cols}x{rows}, larger than your terminal"))
}

/// Returns keys as the user presses them. A thread reads them, because non-blocking reads would
/// change the terminal for every process that shares it.
fn keys() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = io::stdin().read(&mut buffer) {
            if sender.blocking_send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The signals that end the visit instead of the program.
struct VisitSignals {
    all: [Signal; 4],
}

impl VisitSignals {
    fn new() -> io::Result<VisitSignals> {
        let kinds = [
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::interrupt(),
            SignalKind::quit(),
        ];
        let [term, hangup, interrupt, quit] = kinds.map(signal);
        Ok(VisitSignals { all: [term?, hangup?, interrupt?, quit?] })
    }

    async fn next(&mut self) {
        let [term, hangup, interrupt, quit] = &mut self.all;
        tokio::select! {
            _ = term.recv() => {}
            _ = hangup.recv() => {}
            _ = interrupt.recv() => {}
            _ = quit.recv() => {}
        }
    }
}

async fn screen(client: &mut Client, id: &str, format: &str) -> anyhow::Result<String> {
    let path = format!("/admin/live/{id}/screen?format={format}");
    let reply = client.ask(Method::GET, &path, "*/*", None).await?;
    let status = reply.status;
    let text = reply.text().await?;
    if status >= 400 {
        let error: Value = serde_json::from_str(&text).unwrap_or_default();
        anyhow::bail!("{}", error["error"].as_str().unwrap_or("the server refused the request"));
    }
    Ok(text)
}

/// Returns the one id that begins with `id`.
fn resolve(live: &[Value], id: &str) -> anyhow::Result<String> {
    let ids = live.iter().filter_map(|one| one["id"].as_str());
    let matching: Vec<&str> = ids.filter(|known| known.starts_with(id)).collect();
    match matching[..] {
        [one] => Ok(one.to_owned()),
        [] => anyhow::bail!(
            "no live session or process has the ID {id}; `hob attach --list` shows all"
        ),
        _ => anyhow::bail!("{} IDs begin with {id}; type more characters", matching.len()),
    }
}

fn print_list(live: &[Value], json: bool) {
    if json {
        printer::out_json(&json!({"live": live}));
        return;
    }
    if live.is_empty() {
        errln!("no session or process is live");
        return;
    }
    outln!(
        "{:12} {:8} {:12} {:10} {:8} {:6} {:>5} {:>7}  FOLDER",
        "ID",
        "KIND",
        "APP",
        "AGENT",
        "SHOWS",
        "STATE",
        "TURNS",
        "VIEWERS"
    );
    for one in live {
        let text = |key: &str| one[key].as_str().unwrap_or("-");
        outln!(
            "{:12} {:8} {:12} {:10} {:8} {:6} {:>5} {:>7}  {}",
            text("id").get(..12).unwrap_or(text("id")),
            text("kind"),
            text("app"),
            text("agent"),
            if one["terminal"] == true { "terminal" } else { "events" },
            if one["busy"] == true { "busy" } else { "idle" },
            one["turns"].to_string(),
            one["viewers"].to_string(),
            text("cwd"),
        );
    }
}

/// Reads `ctrl-]`, `^]`, `C-a`.
fn detach_key(text: &str) -> Result<DetachKey, String> {
    let lower = text.to_ascii_lowercase();
    let name = ["ctrl-", "ctrl+", "c-", "^"].iter().find_map(|start| lower.strip_prefix(start));
    match name.map(str::as_bytes) {
        Some([key @ (b'a'..=b'z' | b'@' | b'[' | b'\\' | b']' | b'^' | b'_')]) => {
            Ok(DetachKey(key & 0x1f))
        }
        _ => Err("use a form such as ctrl-] or ctrl-a".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detach_key_is_read_in_several_spellings() {
        for (text, byte) in
            [("ctrl-]", 0x1d), ("^]", 0x1d), ("Ctrl-A", 1), ("C-\\", 0x1c), ("ctrl+@", 0)]
        {
            assert_eq!(detach_key(text), Ok(DetachKey(byte)), "{text}");
        }
        for bad in ["", "x", "ctrl-", "ctrl-]]", "ctrl-1", "alt-x"] {
            assert!(detach_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn id_may_be_shortened_to_a_unique_prefix() {
        let live = [json!({"id": "aab"}), json!({"id": "abc"})];
        assert_eq!(resolve(&live, "ab").unwrap(), "abc");
        assert!(resolve(&live, "a").unwrap_err().to_string().contains("2 IDs begin with"));
        assert!(resolve(&live, "x").is_err());
    }
}
