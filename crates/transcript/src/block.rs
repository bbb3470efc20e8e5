use serde::de::MapAccess;

use crate::json::{self, Fields, Scalar};

/// A content block of a message, in either client's transcript, as far as it is text.
#[derive(Debug, Default)]
pub struct TextBlock<'a> {
    pub kind: Scalar<'a>,
    pub text: Scalar<'a>,
}

impl<'a> Fields<'a> for TextBlock<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value()?,
            "text" => self.text = map.next_value()?,
            _ => json::skip(map)?,
        }
        Ok(())
    }
}
