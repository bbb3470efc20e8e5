//! The words that steer the scripted agent and the scripted model API.
//!
//! A prompt may hold any number of `[[verb rest]]`. Without any, the answer is `echo: ` and the
//! prompt. A script file ([`VARIABLE`]) holds one line per turn and wins over the prompt.
//!
//! | words | effect |
//! |---|---|
//! | `[[say TEXT]]` | a block of text |
//! | `[[big N]]` | a block of N bytes of text |
//! | `[[think TEXT]]` | a block of thinking |
//! | `[[thoughts N BYTES]]` | over ACP: N blocks of thinking of this length |
//! | `[[afterwards N]]` | over ACP: N messages of a mebibyte after the turn's end |
//! | `[[tool NAME JSON]]` | a tool call; the agent runs `Bash` for real, in a session of its own, and asks MCP servers |
//! | `[[also NAME JSON]]` | one more call in the same message as the tool before it |
//! | `[[stop REASON]]` | the stop reason |
//! | `[[cost USD]]` | the process has cost this much more (terminal, stream-json) |
//! | `[[error STATUS TEXT]]` | the model API's error |
//! | `[[sleep MS]]`, `[[hang]]` | wait for this long, or forever |
//! | `[[retry MS]]` | wait as the CLI does between tries of a failing API |
//! | `[[permission TITLE]]` | ask for permission and go on once there is an answer; over ACP `TITLE :: COMMAND` says for what |
//! | `[[request METHOD JSON]]` | ask the client for something; a block of text with its answer (ACP) |
//! | `[[crash]]`, `[[exit N]]` | end by SIGKILL, or with a code |
//! | `[[stderr TEXT]]`, `[[garbage TEXT]]` | a line on standard error; a raw line on standard output |
//! | `[[daemon]]` | leave a grandchild in a session of its own |
//! | `[[chunks N]]` | N blocks of text |
//! | `[[note TEXT]]` | a line in the file `notes` of the working folder |
//! | `[[until FILE]]` | wait until this file exists in the working folder |
//! | `[[deaf]]` | ignore the protocol's cancel from now on |
//! | `[[stubborn]]` | ignore TERM, INT, HUP and end of file from now on |
//! | `[[late MS]]` | records reach the transcript this long after the answer is shown |
//! | `[[shuffle]]`, `[[torn]]` | the first batch out of order; records in torn writes |
//! | `[[flood N]]` | N bytes onto the screen |
//! | `[[stamps N MS]]` | over ACP: N chunks of text, one every MS milliseconds, each with the time of its writing |
//! | `[[env NAME]]` | a block of text with that variable's value |
//!
//! In stream-json, an agent that is resumed with results of tools goes on with the steps after those calls.
//!
//! On the terminal, in stream-json and over ACP, `{history}` in a text is replaced by all earlier messages. On the
//! terminal and in stream-json, `{result}` is replaced by the last result of a tool.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// The variable that names a script file.
pub const VARIABLE: &str = "HOB_SCRIPT";

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Say(String),
    Think(String),
    /// The flag says that it belongs to the same message as the call before it.
    Tool {
        name: String,
        input: Value,
        also: bool,
    },
    Stop(String),
    Cost(f64),
    Error {
        status: u16,
        message: String,
    },
    Sleep(u64),
    Hang,
    Until(String),
    Note(String),
    Deaf,
    Retry(u64),
    Permission(String),
    Request {
        method: String,
        params: Value,
    },
    Crash,
    Exit(i32),
    Stderr(String),
    Garbage(String),
    Daemon,
    Stubborn,
    Late(u64),
    Shuffle,
    Torn,
    Flood(usize),
    Stamps {
        count: u64,
        every_ms: u64,
    },
    Thoughts {
        count: u64,
        bytes: usize,
    },
    Afterwards(usize),
}

/// Reads the words of a prompt. Something in double brackets that is no such word is left alone.
pub fn parse(prompt: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = prompt;
    while let Some(start) = rest.find("[[") {
        rest = &rest[start + 2..];
        let Some(end) = rest.find("]]") else { break };
        let words = &rest[..end];
        match words.strip_prefix("chunks ").and_then(|count| count.parse::<usize>().ok()) {
            Some(count) => steps.extend((0..count).map(|n| Step::Say(format!("chunk {n} ")))),
            None => steps.extend(parse_one(words)),
        }
        rest = &rest[end + 2..];
    }
    steps
}

fn parse_one(words: &str) -> Option<Step> {
    let (verb, rest) = words.split_once(' ').unwrap_or((words, ""));
    let text = rest.to_owned();
    let tool = |also| {
        let (name, input) = rest.split_once(' ').unwrap_or((rest, "{}"));
        let input = serde_json::from_str(input).ok()?;
        Some(Step::Tool { name: name.to_owned(), input, also })
    };
    Some(match verb {
        "say" => Step::Say(text),
        "big" => Step::Say(long_text(rest.parse().ok()?)),
        "env" => Step::Say(std::env::var(rest).unwrap_or_else(|_| "(unset)".to_owned())),
        "think" => Step::Think(text),
        "tool" => tool(false)?,
        "also" => tool(true)?,
        "stop" => Step::Stop(text),
        "cost" => Step::Cost(rest.parse().ok()?),
        "error" => {
            let (status, message) = rest.split_once(' ').unwrap_or((rest, "scripted error"));
            Step::Error { status: status.parse().ok()?, message: message.to_owned() }
        }
        "sleep" => Step::Sleep(rest.parse().ok()?),
        "hang" => Step::Hang,
        "until" => Step::Until(text),
        "note" => Step::Note(text),
        "deaf" => Step::Deaf,
        "retry" => Step::Retry(rest.parse().ok()?),
        "permission" => Step::Permission(text),
        "request" => {
            let (method, params) = rest.split_once(' ').unwrap_or((rest, "{}"));
            let params = serde_json::from_str(params).ok()?;
            Step::Request { method: method.to_owned(), params }
        }
        "crash" => Step::Crash,
        "exit" => Step::Exit(rest.parse().ok()?),
        "stderr" => Step::Stderr(text),
        "garbage" => Step::Garbage(text),
        "daemon" => Step::Daemon,
        "stubborn" => Step::Stubborn,
        "late" => Step::Late(rest.parse().ok()?),
        "shuffle" => Step::Shuffle,
        "torn" => Step::Torn,
        "flood" => Step::Flood(rest.parse().ok()?),
        "afterwards" => Step::Afterwards(rest.parse().ok()?),
        "thoughts" => {
            let (count, bytes) = rest.split_once(' ')?;
            Step::Thoughts { count: count.parse().ok()?, bytes: bytes.parse().ok()? }
        }
        "stamps" => {
            let (count, every) = rest.split_once(' ')?;
            Step::Stamps { count: count.parse().ok()?, every_ms: every.parse().ok()? }
        }
        _ => return None,
    })
}

/// The steps of a turn: from the script file's line, else from the prompt; an echo when nothing
/// there is an answer.
pub fn turn(prompt: &str, number: usize) -> Vec<Step> {
    let scripted = std::env::var_os(VARIABLE).and_then(|path| std::fs::read_to_string(path).ok());
    let scripted = scripted.as_deref().and_then(|text| text.lines().nth(number));
    with_answer(parse(scripted.unwrap_or(prompt)), prompt)
}

/// Returns what is left of a prompt after this many calls of its tools.
pub fn after_calls(prompt: &str, calls: usize) -> Vec<Step> {
    let mut left = calls;
    let rest = parse(prompt).into_iter().skip_while(|step| {
        let is_done = left > 0;
        left -= usize::from(is_done && matches!(step, Step::Tool { .. }));
        is_done
    });
    with_answer(rest.collect(), prompt)
}

/// Adds the echo where no step is an answer or an ending.
pub fn with_answer(mut steps: Vec<Step>, prompt: &str) -> Vec<Step> {
    let answers = |step: &Step| {
        matches!(
            step,
            Step::Say(_)
                | Step::Request { .. }
                | Step::Error { .. }
                | Step::Crash
                | Step::Exit(_)
                | Step::Stamps { .. }
        )
    };
    if !steps.iter().any(answers) {
        steps.push(Step::Say(format!("echo: {prompt}")));
    }
    steps
}

/// The stop reason, `end_turn` unless a step says otherwise.
pub fn stop_reason(steps: &[Step]) -> String {
    let found = steps.iter().rev().find_map(|step| match step {
        Step::Stop(reason) => Some(reason.clone()),
        _ => None,
    });
    found.unwrap_or_else(|| "end_turn".to_owned())
}

/// The messages of a turn: the first ends with the first tool calls, and so on; the last has none.
pub fn messages(steps: &[Step]) -> Vec<Vec<Step>> {
    let mut messages = vec![Vec::new()];
    let mut after_tool = false;
    for step in steps {
        let also = matches!(step, Step::Tool { also: true, .. });
        if after_tool && !also {
            messages.push(Vec::new());
        }
        after_tool = matches!(step, Step::Tool { .. });
        messages.last_mut().expect("there is one").push(step.clone());
    }
    if after_tool {
        messages.push(vec![Step::Say("done".to_owned())]);
    }
    messages
}

/// What a stamp says: microseconds since 1970 and a blank.
pub fn stamp() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{} ", now.as_micros())
}

/// `length` bytes of lines that differ.
pub fn long_text(length: usize) -> String {
    let mut text = String::with_capacity(length + 32);
    let mut line = 0;
    while text.len() < length {
        text.push_str(&format!("line {line:06} of a long answer\n"));
        line += 1;
    }
    text.truncate(length);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn script_reads_its_words_and_keeps_other_text() {
        let steps =
            parse("do [[sleep 5]] this [[say hi there]] [[nonsense]] [[1, 2]] [[exit x]] [[");
        assert_eq!(steps, [Step::Sleep(5), Step::Say("hi there".into())]);
        let stamps = Step::Stamps { count: 50, every_ms: 20 };
        assert_eq!(parse("[[stamps 50 20]] [[stamps 1]]"), [stamps]);
    }

    #[test]
    fn script_without_words_echoes_the_prompt() {
        let echo = |prompt: &str| with_answer(parse(prompt), prompt);
        assert_eq!(echo("hi"), [Step::Say("echo: hi".into())]);
        assert_eq!(echo("[[say x]]"), [Step::Say("x".into())]);
        assert_eq!(echo("[[exit 3]]"), [Step::Exit(3)]);
    }

    #[test]
    fn script_goes_on_after_calls() {
        let prompt = r#"[[say a]] [[tool Bash {}]] [[say b]] [[tool Bash {}]] [[say c]]"#;
        assert_eq!(after_calls(prompt, 0), parse(prompt));
        assert_eq!(after_calls(prompt, 1), parse(prompt)[2..]);
        assert_eq!(after_calls(prompt, 2), [Step::Say("c".into())]);
        assert_eq!(
            after_calls("[[tool Bash {}]]", 1),
            [Step::Say("echo: [[tool Bash {}]]".into())]
        );
    }

    #[test]
    fn script_tools_split_a_turn_into_messages() {
        let steps = parse(r#"[[say a]] [[tool Bash {"command":"x"}]] [[also Read {}]] [[say b]]"#);
        let messages = messages(&steps);
        assert_eq!(messages.len(), 2);
        assert_eq!(messages[0].len(), 3);
        assert_eq!(messages[1], [Step::Say("b".into())]);
        let input = json!({"command": "x"});
        assert_eq!(messages[0][1], Step::Tool { name: "Bash".into(), input, also: false });
        assert_eq!(super::messages(&parse("[[tool Bash {}]]"))[1], [Step::Say("done".into())]);
    }

    #[test]
    fn long_text_has_the_asked_length() {
        assert_eq!(long_text(60_000).len(), 60_000);
    }
}
