//! The parts of which a reply consists, made from deltas and complete blocks.

use std::collections::VecDeque;

use hob_agents::claude::TurnResult;
use serde_json::Value;

/// A part of a reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    /// A text block begins.
    Begin,
    Text(String),
    /// The text block is complete.
    End,
    /// A block of thinking.
    Thought(String),
    /// A call of one of the client's tools begins. Its arguments follow in pieces.
    CallBegin {
        id: String,
        name: String,
    },
    /// A piece of the arguments, as JSON.
    CallPiece(String),
    /// The call is complete.
    CallEnd,
    /// A whole call of one of the client's tools.
    Call(ClientCall),
    /// The answer has ended: with the turn, or with calls.
    Over(TurnResult),
}

/// A call of one of the client's tools.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClientCall {
    pub id: String,
    pub name: String,
    pub input: Value,
}

impl ClientCall {
    /// Returns the parts of a call whose arguments come in one piece.
    pub fn in_parts(self) -> [Part; 3] {
        let ClientCall { id, name, input } = self;
        [Part::CallBegin { id, name }, Part::CallPiece(input.to_string()), Part::CallEnd]
    }
}

/// Combines deltas and complete blocks: a text that arrived in deltas is not repeated as a block.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// The deltas of the text that is not complete yet.
    pieces: Option<String>,
}

impl Texts {
    pub fn piece(&mut self, text: String, parts: &mut VecDeque<Part>) {
        if text.is_empty() {
            return;
        }
        if self.pieces.is_none() {
            parts.push_back(Part::Begin);
        }
        self.pieces.get_or_insert_default().push_str(&text);
        parts.push_back(Part::Text(text));
    }

    pub fn block(&mut self, text: String, parts: &mut VecDeque<Part>) {
        match self.pieces.take() {
            Some(pieces) => match text.strip_prefix(&pieces) {
                Some("") => parts.push_back(Part::End),
                Some(rest) => parts.extend([Part::Text(rest.to_owned()), Part::End]),
                // The model was called again and gave another text.
                None => parts.extend([Part::End, Part::Begin, Part::Text(text), Part::End]),
            },
            None if text.is_empty() => {}
            None => parts.extend([Part::Begin, Part::Text(text), Part::End]),
        }
    }

    pub fn close(&mut self, parts: &mut VecDeque<Part>) {
        if self.pieces.take().is_some() {
            parts.push_back(Part::End);
        }
    }
}

/// Calls of the client's tools whose arguments come in pieces. What the client has received cannot be taken back, so an
/// answer fails if a call that has begun is not made.
#[derive(Debug, Default)]
pub(super) struct StreamedCalls {
    /// The names of the tools whose calls come in pieces.
    tools: Vec<String>,
    /// The call that is not complete yet.
    open: Option<OpenCall>,
    /// The ids of the complete calls.
    complete: Vec<String>,
}

#[derive(Debug)]
struct OpenCall {
    id: String,
    /// The arguments so far.
    json: String,
}

/// A call began that the agent does not make.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AbandonedCall;

impl StreamedCalls {
    pub fn of(tools: Vec<String>) -> StreamedCalls {
        StreamedCalls { tools, ..StreamedCalls::default() }
    }

    /// Returns whether calls of this tool come in pieces.
    pub fn has_tool(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool == name)
    }

    /// Returns whether the client has this call already.
    pub fn has_sent(&self, id: &str) -> bool {
        self.complete.iter().any(|known| known == id)
    }

    pub fn begin(
        &mut self,
        id: String,
        name: String,
        parts: &mut VecDeque<Part>,
    ) -> Result<(), AbandonedCall> {
        if self.open.is_some() {
            return Err(AbandonedCall);
        }
        self.open = Some(OpenCall { id: id.clone(), json: String::new() });
        parts.push_back(Part::CallBegin { id, name });
        Ok(())
    }

    pub fn piece(&mut self, json: String, parts: &mut VecDeque<Part>) {
        if let Some(open) = &mut self.open
            && !json.is_empty()
        {
            open.json.push_str(&json);
            parts.push_back(Part::CallPiece(json));
        }
    }

    /// Completes the open call if this block is the call.
    pub fn block(
        &mut self,
        id: &str,
        input: &Value,
        parts: &mut VecDeque<Part>,
    ) -> Result<(), AbandonedCall> {
        let Some(OpenCall { id, json }) = self.open.take_if(|open| open.id == id) else {
            return Ok(());
        };
        if json.is_empty() {
            parts.push_back(Part::CallPiece(input.to_string()));
        } else if serde_json::from_str::<Value>(&json).is_err() {
            return Err(AbandonedCall);
        }
        parts.push_back(Part::CallEnd);
        self.complete.push(id);
        Ok(())
    }

    /// Checks that the agent has not answered a call itself, as it does if it refuses one.
    pub fn answered(&self, id: &str) -> Result<(), AbandonedCall> {
        if self.has_sent(id) { Err(AbandonedCall) } else { Ok(()) }
    }

    /// Checks at the end of an answer that the agent makes every call that has begun.
    pub fn end(&self, made: &[ClientCall]) -> Result<(), AbandonedCall> {
        let is_made = |id: &String| made.iter().any(|call| call.id == *id);
        match self.open.is_none() && self.complete.iter().all(is_made) {
            true => Ok(()),
            false => Err(AbandonedCall),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_comes_once() {
        let mut parts = VecDeque::new();
        let mut texts = Texts::default();
        texts.piece("he".into(), &mut parts);
        texts.piece("llo".into(), &mut parts);
        texts.block("hello!".into(), &mut parts);
        texts.block("more".into(), &mut parts);
        texts.piece("cut".into(), &mut parts);
        texts.close(&mut parts);
        texts.close(&mut parts);
        texts.piece("bro".into(), &mut parts);
        texts.block("other".into(), &mut parts);
        let text = |text: &str| Part::Text(text.to_owned());
        let (begin, end) = (Part::Begin, Part::End);
        let expect = [
            begin.clone(),
            text("he"),
            text("llo"),
            text("!"),
            end.clone(),
            begin.clone(),
            text("more"),
            end.clone(),
            begin.clone(),
            text("cut"),
            end.clone(),
            begin.clone(),
            text("bro"),
            end.clone(),
            begin,
            text("other"),
            end,
        ];
        assert_eq!(Vec::from(parts), expect);
    }

    #[test]
    fn a_call_comes_in_pieces() {
        let mut parts = VecDeque::new();
        let mut calls = StreamedCalls::of(vec!["add".to_owned()]);
        assert!(calls.has_tool("add") && !calls.has_tool("Bash"));
        calls.piece("lost".into(), &mut parts);
        calls.begin("a".into(), "add".into(), &mut parts).unwrap();
        calls.piece("{\"x\":".into(), &mut parts);
        calls.block("other", &json!({}), &mut parts).unwrap();
        calls.piece(" 1}".into(), &mut parts);
        calls.block("a", &json!({"x": 1}), &mut parts).unwrap();
        calls.begin("b".into(), "add".into(), &mut parts).unwrap();
        calls.block("b", &json!({}), &mut parts).unwrap();
        let begin = |id: &str| Part::CallBegin { id: id.to_owned(), name: "add".to_owned() };
        let piece = |json: &str| Part::CallPiece(json.to_owned());
        let expect = [
            begin("a"),
            piece("{\"x\":"),
            piece(" 1}"),
            Part::CallEnd,
            begin("b"),
            piece("{}"),
            Part::CallEnd,
        ];
        assert_eq!(Vec::from(parts), expect);
        let made = |id: &str| ClientCall { id: id.into(), name: "add".into(), input: json!({}) };
        assert_eq!(calls.end(&[made("a"), made("b"), made("c")]), Ok(()));
        assert_eq!(calls.end(&[made("a")]), Err(AbandonedCall));
        assert_eq!((calls.answered("a"), calls.answered("c")), (Err(AbandonedCall), Ok(())));
    }

    #[test]
    fn a_call_that_is_cut_off_is_noticed() {
        let mut parts = VecDeque::new();
        let begun = |parts: &mut VecDeque<Part>| {
            let mut calls = StreamedCalls::of(vec!["add".to_owned()]);
            calls.begin("a".into(), "add".into(), parts).unwrap();
            calls.piece("{\"x\":".into(), parts);
            calls
        };
        let mut calls = begun(&mut parts);
        assert_eq!(calls.begin("b".into(), "add".into(), &mut parts), Err(AbandonedCall));
        assert_eq!(calls.end(&[]), Err(AbandonedCall));
        assert_eq!(calls.block("a", &json!({"x": 1}), &mut parts), Err(AbandonedCall));
    }
}
