//! JSON without a strict schema: a value of an unexpected type is empty, and costs neither its record
//! nor its neighbours. Fields that nobody reads are skipped without being stored.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A line that is not a JSON object.
#[derive(Debug)]
pub struct Unreadable;

/// Parses the object that a line is.
pub fn object<'a, T: Fields<'a>>(line: &'a [u8]) -> Result<T, Unreadable> {
    match serde_json::from_slice(line) {
        Ok(Loose::Object(object)) => Ok(object),
        _ => Err(Unreadable),
    }
}

/// Parses the object that a line is, with all of its fields.
pub fn any_object(line: &[u8]) -> Result<serde_json::Value, Unreadable> {
    let value = serde_json::from_slice::<serde_json::Value>(line).map_err(|_| Unreadable)?;
    if value.is_object() { Ok(value) } else { Err(Unreadable) }
}

/// A value that is filled from the fields of an object, in any order and number.
pub trait Fields<'a>: Default {
    /// Reads the value of one field, which is the next value of `map`.
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;
}

/// Skips the value of a field.
pub fn skip<'a, A: MapAccess<'a>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(drop)
}

/// Reads a field that is a flag; everything but `true` is false.
pub fn flag<'a, A: MapAccess<'a>>(map: &mut A) -> Result<bool, A::Error> {
    Ok(matches!(map.next_value::<Scalar<'a>>()?, Loose::True))
}

/// Any value, as far as readers of transcripts use it.
#[derive(Debug, Default)]
pub enum Loose<'a, T> {
    Text(Cow<'a, str>),
    True,
    Object(T),
    Unsigned(u64),
    /// The objects of a list, without its other elements.
    List(Vec<T>),
    #[default]
    Other,
}

/// A value of which only text, truth and numbers matter.
pub type Scalar<'a> = Loose<'a, Nothing>;

/// An object of which no field matters.
#[derive(Debug, Default)]
pub struct Nothing;

impl<'a> Fields<'a> for Nothing {
    fn field<A: MapAccess<'a>>(&mut self, _key: &str, map: &mut A) -> Result<(), A::Error> {
        skip(map)
    }
}

impl<T> Loose<'_, T> {
    pub fn text(&self) -> Option<&str> {
        match self {
            Loose::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn owned(&self) -> Option<String> {
        self.text().map(str::to_owned)
    }

    pub fn unsigned(&self) -> Option<u64> {
        match self {
            Loose::Unsigned(number) => Some(*number),
            _ => None,
        }
    }

    pub fn object(&self) -> Option<&T> {
        match self {
            Loose::Object(object) => Some(object),
            _ => None,
        }
    }
}

impl<'de: 'a, 'a, T: Fields<'de>> Deserialize<'de> for Loose<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LooseVisitor(PhantomData))
    }
}

struct LooseVisitor<'a, T>(PhantomData<Loose<'a, T>>);

impl<'de: 'a, 'a, T: Fields<'de>> Visitor<'de> for LooseVisitor<'a, T> {
    type Value = Loose<'a, T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Loose::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Loose::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Self::Value, E> {
        Ok(if truth { Loose::True } else { Loose::Other })
    }

    fn visit_i64<E>(self, _number: i64) -> Result<Self::Value, E> {
        Ok(Loose::Other)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Loose::Unsigned(number))
    }

    fn visit_f64<E>(self, _number: f64) -> Result<Self::Value, E> {
        Ok(Loose::Other)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Loose::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut objects = Vec::new();
        while let Some(element) = list.next_element::<Loose<'de, T>>()? {
            if let Loose::Object(object) = element {
                objects.push(object);
            }
        }
        Ok(Loose::List(objects))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut object = T::default();
        while let Some(key) = map.next_key::<Scalar<'de>>()? {
            object.field(key.text().unwrap_or_default(), &mut map)?;
        }
        Ok(Loose::Object(object))
    }
}

/// Returns a line without what a JSON parser rejects: replaces invalid UTF-8 and unpaired surrogates by
/// U+FFFD, and control characters inside strings by their escapes. Removes zero bytes between values,
/// which a crash may leave in a file.
pub fn repaired(line: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(line);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    let mut in_string = false;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '\\' || c < ' ') {
        out.push_str(&rest[..at]);
        let found = rest[at..].chars().next().unwrap_or_default();
        let mut length = found.len_utf8();
        match found {
            '"' => {
                in_string = !in_string;
                out.push('"');
            }
            '\\' if in_string => length = escape(&rest[at..], &mut out),
            '\\' => out.push('\\'),
            control if in_string => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            '\0' => {}
            blank => out.push(blank),
        }
        rest = &rest[at + length..];
    }
    out.push_str(rest);
    out.into_bytes()
}

/// Copies the escape at the beginning of `text`, or U+FFFD for an unpaired surrogate. Returns the
/// length of the escape in bytes.
fn escape(text: &str, out: &mut String) -> usize {
    let unit = |text: &str| {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let length = match unit(text) {
        Some(0xd800..=0xdbff) => {
            if !matches!(unit(&text[6..]), Some(0xdc00..=0xdfff)) {
                out.push_str("\\ufffd");
                return 6;
            }
            12
        }
        Some(0xdc00..=0xdfff) => {
            out.push_str("\\ufffd");
            return 6;
        }
        Some(_) => 6,
        // A backslash and the character that it escapes. The caller handles control characters.
        None => 1 + text[1..].chars().next().filter(|c| *c >= ' ').map_or(0, char::len_utf8),
    };
    out.push_str(&text[..length]);
    length
}
