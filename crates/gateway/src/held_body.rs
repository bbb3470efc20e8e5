//! A response body that holds something until it has been sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

struct HeldBody<T> {
    body: Body,
    _held: T,
}

/// Keeps `held` until the response has been sent, or its client has gone.
pub(crate) fn hold<T: Unpin + Send + 'static>(response: Response, held: T) -> Response {
    response.map(|body| Body::new(HeldBody { body, _held: held }))
}

impl<T: Unpin> HttpBody for HeldBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
