//! One module per way of talking to an agent. Each has wire types of its own.

pub(crate) mod claude_print;
