//! The mark of requests from the owner's socket.

/// An extension of requests that arrive over the owner's socket. They need no token, and no browser
/// can send them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner;
