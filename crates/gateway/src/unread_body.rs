//! Bodies of requests that are answered before they were read, such as those to unknown paths.
//!
//! A connection survives only if the whole request has been read: else the client's next request meets a closed one.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use tokio::sync::oneshot;

use crate::extract::body::MAX_DISCARDED_BYTES;
use crate::state::Gateway;

/// How long the rest of a body may take to arrive.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// The body that a handler gets. It gives the body back when the handler drops it.
struct LentBody {
    body: Body,
    /// How many bytes the handler has read.
    seen: usize,
    has_ended: bool,
    back: Option<oneshot::Sender<(Body, usize)>>,
}

/// Reads and discards what the handler has not read of a body, within the limit of bodies that are too large.
pub(crate) async fn discard(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    // A client that waits for the permission to send its body does not send it after an answer.
    if request.body().is_end_stream() || request.headers().contains_key(header::EXPECT) {
        return next.run(request).await;
    }
    let (back, mut returned) = oneshot::channel();
    let lend = |body| Body::new(LentBody { body, seen: 0, has_ended: false, back: Some(back) });
    let response = next.run(request.map(lend)).await;
    // A caller without a token loses its connection anyway, and for a slow one Hob has waited already. Some handlers keep
    // the body while the response is sent.
    if !matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::REQUEST_TIMEOUT)
        && let Ok((body, seen)) = returned.try_recv()
    {
        let limit = gateway.limits.max_body_bytes.saturating_add(MAX_DISCARDED_BYTES);
        // The answer is sent in any case.
        let _ = tokio::time::timeout(DISCARD_TIMEOUT, read(body, seen, limit)).await;
    }
    response
}

/// Reads a body to its end, or until it is larger than `limit`.
async fn read(mut body: Body, mut seen: usize, limit: usize) {
    while seen <= limit
        && let Some(Ok(frame)) = body.frame().await
    {
        seen += frame.data_ref().map_or(0, Bytes::len);
    }
}

impl HttpBody for LentBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => self.seen += frame.data_ref().map_or(0, Bytes::len),
            Poll::Ready(None | Some(Err(_))) => self.has_ended = true,
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if let Some(back) = self.back.take()
            && !self.has_ended
            && !self.body.is_end_stream()
        {
            // Nobody takes it back if the request was cancelled.
            let _ = back.send((std::mem::take(&mut self.body), self.seen));
        }
    }
}
