//! `hob attach`: a live terminal in one's own.

use std::io::{self, Read};

use clap::{Args as ClapArgs, ValueEnum};
use hob_gateway::client::{Client, Method};
use hob_gateway::web_socket::{self, Frame, WebSocket};
use hob_terminal::{Filter, FilterPolicy};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::{Context, Exit};
use crate::memory;
use crate::owner_client::{self, NotRunning};
use crate::raw_terminal::{self, RawTerminal};

/// Watch a live agent's terminal, and type into it
#[derive(ClapArgs)]
#[command(after_help = "\
An ID may be cut short as long as it fits one. Whoever types first has the writing until they leave; \
--take takes it over. An agent without a terminal shows its events. Nothing of what an agent writes \
acts on your terminal: titles, the clipboard, questions and pictures are left out.

Exits 3 when hob is not running.")]
pub struct Args {
    /// What to watch; without it, what is alive is listed
    id: Option<String>,
    /// List what is alive
    #[arg(long)]
    list: bool,
    /// With --list: print {"live":[…]}; with --screen: the screen as an object
    #[arg(long)]
    json: bool,
    /// Print what the screen shows now, and leave
    #[arg(long, requires = "id")]
    screen: bool,
    /// With --screen: as what
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Watch only: keys go nowhere, the size stays
    #[arg(long)]
    read_only: bool,
    /// Take the writing over from whoever has it
    #[arg(long, conflicts_with = "read_only")]
    take: bool,
    /// The key that leaves: ctrl- and a letter or one of @ [ \ ] ^ _
    #[arg(long, value_name = "KEY", default_value = "ctrl-]", value_parser = detach_key)]
    detach_key: DetachKey,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    /// What draws it on a terminal
    Ansi,
    /// A picture
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

/// The key as the byte it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DetachKey(u8);

/// How it came to its end.
enum Left {
    /// The key was pressed, or a signal came.
    Detached,
    /// The server said why.
    Ended(String),
    /// The server said nothing.
    Gone(String),
}

pub fn run(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let runtime = memory::runtime()?;
    let outcome = runtime.block_on(act(context, args));
    // A thread may still wait for a key.
    runtime.shutdown_background();
    match outcome {
        Err(error) if error.is::<NotRunning>() => {
            eprintln!("hob: {error}");
            Ok(Exit::WrongState)
        }
        outcome => outcome,
    }
}

async fn act(context: &Context, args: &Args) -> anyhow::Result<Exit> {
    let socket = &context.settings.socket;
    let mut client = owner_client::connect(socket).await?;
    let answer = owner_client::ask(&mut client, Method::GET, "/admin/live", None).await?;
    let live = answer["live"].as_array().cloned().unwrap_or_default();
    let Some(id) = args.id.as_deref().filter(|_| !args.list) else {
        print_list(&live, args.json);
        return Ok(Exit::Done);
    };
    let id = resolve(&live, id)?;
    if args.screen {
        let format = if args.json { "json" } else { args.format.as_str() };
        print!("{}", screen(&mut client, &id, format).await?);
        return Ok(Exit::Done);
    }
    if !RawTerminal::is_there() {
        anyhow::bail!(
            "attach needs a terminal for keys and screen; without one, use --screen to print what is shown"
        );
    }
    let path = format!("/admin/live/{id}/attach?scrollback=0");
    let mut server = web_socket::open(owner_client::stream(socket)?, &path).await?;
    let left = watch(&mut server, args).await?;
    server.close().await;
    match left {
        Left::Detached => eprintln!("hob: left {id}; it goes on"),
        Left::Ended(reason) => eprintln!("hob: {reason}"),
        Left::Gone(error) => anyhow::bail!("the server has gone ({error})"),
    }
    Ok(Exit::Done)
}

/// Shows and types until either side leaves. The terminal is given back whatever happens.
async fn watch(server: &mut WebSocket<UnixStream>, args: &Args) -> anyhow::Result<Left> {
    let hello = match server.next().await? {
        Some(Frame::Text(text)) => serde_json::from_str::<Value>(&text).unwrap_or_default(),
        _ => anyhow::bail!("the server did not say hello: is it an older hob? restart it"),
    };
    let has_terminal = hello["terminal"] == true;
    let mut signals = Signals::new()?;
    let mut resized = signal(SignalKind::window_change())?;
    let terminal = RawTerminal::lend(has_terminal)?;
    let mut keys = keys();
    let mut shown = Filter::new(FilterPolicy::OwnTerminal);
    if args.take {
        server.send(Frame::Text(json!({"type": "take"}).to_string())).await?;
    }
    let may_resize = has_terminal && !args.read_only;
    if may_resize {
        server.send(own_size()).await?;
    }
    // Said once the screen is drawn: that would draw over it.
    let mut notice = too_small(&hello).filter(|_| !may_resize);
    loop {
        tokio::select! {
            frame = server.next() => match frame {
                Ok(Some(Frame::Binary(bytes))) => {
                    terminal.write(&shown.pass(&bytes))?;
                    if let Some(notice) = notice.take() {
                        terminal.say(&notice)?;
                    }
                }
                Ok(Some(Frame::Text(text))) => {
                    let message: Value = serde_json::from_str(&text).unwrap_or_default();
                    let text = |key: &str| message[key].as_str().unwrap_or_default().to_owned();
                    match message["type"].as_str() {
                        Some("end") => return Ok(Left::Ended(text("reason"))),
                        Some("refused") => terminal.say(&text("reason"))?,
                        Some("size") => notice = too_small(&message),
                        _ => {}
                    }
                }
                Ok(None) => return Ok(Left::Gone("the connection was closed".to_owned())),
                Err(error) => return Ok(Left::Gone(error.to_string())),
            },
            typed = keys.recv() => {
                let Some(typed) = typed else { return Ok(Left::Detached) };
                let leaves = typed.iter().position(|byte| *byte == args.detach_key.0);
                let typed = &typed[..leaves.unwrap_or(typed.len())];
                if !args.read_only && !typed.is_empty() {
                    server.send(Frame::Binary(typed.to_vec())).await?;
                }
                if leaves.is_some() {
                    return Ok(Left::Detached);
                }
            }
            _ = resized.recv() => {
                if may_resize {
                    server.send(own_size()).await?;
                }
            }
            () = signals.next() => return Ok(Left::Detached),
        }
    }
}

fn own_size() -> Frame {
    let size = raw_terminal::size();
    Frame::Text(json!({"type": "resize", "cols": size.cols, "rows": size.rows}).to_string())
}

/// What to say when a screen of this size does not fit.
fn too_small(theirs: &Value) -> Option<String> {
    let own = raw_terminal::size();
    let cells = |key: &str| theirs[key].as_u64().unwrap_or_default();
    let (cols, rows) = (cells("cols"), cells("rows"));
    let fits = u64::from(own.cols) >= cols && u64::from(own.rows) >= rows;
    (!fits).then(|| format!("the agent's screen is {cols}x{rows}, larger than yours"))
}

/// Keys as they are pressed. A thread waits for them: nothing else can, without changing the terminal for
/// whoever shares it.
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

/// What would end the program, and now only ends the visit.
struct Signals {
    all: [Signal; 4],
}

impl Signals {
    fn new() -> io::Result<Signals> {
        let kinds = [
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::interrupt(),
            SignalKind::quit(),
        ];
        let [term, hangup, interrupt, quit] = kinds.map(signal);
        Ok(Signals { all: [term?, hangup?, interrupt?, quit?] })
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
        anyhow::bail!("{}", error["error"].as_str().unwrap_or("the server refused"));
    }
    Ok(text)
}

/// A whole id from the beginning of one.
fn resolve(live: &[Value], id: &str) -> anyhow::Result<String> {
    let ids = live.iter().filter_map(|one| one["id"].as_str());
    let fitting: Vec<&str> = ids.filter(|known| known.starts_with(id)).collect();
    match fitting[..] {
        [one] => Ok(one.to_owned()),
        [] => anyhow::bail!("there is nothing alive of the id {id}; `hob attach` lists what is"),
        _ => anyhow::bail!("{} that are alive begin with {id}", fitting.len()),
    }
}

fn print_list(live: &[Value], json: bool) {
    if json {
        println!("{}", json!({"live": live}));
        return;
    }
    if live.is_empty() {
        eprintln!("nothing is alive");
        return;
    }
    println!(
        "{:12} {:8} {:12} {:10} {:8} {:6} {:>5} {:>7}  FOLDER",
        "ID", "KIND", "APP", "AGENT", "SHOWS", "STATE", "TURNS", "VIEWERS"
    );
    for one in live {
        let text = |key: &str| one[key].as_str().unwrap_or("-");
        println!(
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
        _ => Err("write it as ctrl-] or ctrl-a".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_leave() {
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
    fn ids_may_be_short() {
        let live = [json!({"id": "aab"}), json!({"id": "abc"})];
        assert_eq!(resolve(&live, "ab").unwrap(), "abc");
        assert!(resolve(&live, "a").unwrap_err().to_string().contains("2 that are alive"));
        assert!(resolve(&live, "x").is_err());
    }
}
