//! The connection loop: HTTP/1 on a listener that the caller provides.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::connection_places::{ConnectionPlace, ConnectionPlaces};
use crate::connections::Connections;
use crate::owner::Owner;
use crate::write_deadline::WriteDeadline;

/// Maximum size of request headers, in bytes.
const HEADERS: usize = 32 << 10;
/// How long a client may take to send its headers.
const HEADER_DEADLINE: Duration = Duration::from_secs(15);
/// How long a client may leave what was sent to it unread.
const READ_DEADLINE: Duration = Duration::from_secs(30);

/// Serves until `stopping`; then accepts no new connection and lets open ones finish their request.
/// Every connection is a task of `tasks`; a connection still open at `ending` is closed. With `max_connections` open,
/// a new one gets the place of one without a caller, so that descriptors are left for the owner's socket and for agents.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    connections: Connections,
    max_connections: usize,
    tasks: TaskTracker,
    stopping: CancellationToken,
    ending: CancellationToken,
) {
    let places = ConnectionPlaces::new(max_connections);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, or the peer has gone: other connections may still work.
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
            () = stopping.cancelled() => return,
        };
        let _ = stream.set_nodelay(true);
        let taken = tokio::select! {
            taken = places.take() => taken,
            () = stopping.cancelled() => return,
        };
        let open = connections.open();
        let (router, stopping, ending) = (router.clone(), stopping.clone(), ending.clone());
        tasks.spawn(async move {
            let stream = WriteDeadline::new(stream, READ_DEADLINE);
            let finish = taken.finish.clone();
            let end = async move {
                tokio::select! {
                    () = stopping.cancelled() => {}
                    () = finish.cancelled() => {}
                }
            };
            tokio::select! {
                () = converse(stream, router, Some(taken.place.clone()), end) => {}
                () = taken.leave.cancelled() => {}
                () = ending.cancelled() => {}
            }
            drop((open, taken));
        });
    }
}

/// Serves one connection from the owner's socket until it ends or `stopping`. Its requests need no token.
pub async fn serve_owner(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    stopping: CancellationToken,
) {
    let router = router.layer(axum::Extension(Owner));
    converse(stream, router, None, async move { stopping.cancelled().await }).await;
}

/// Announces the end of the connection of a caller without a token. Its body is not read, so the connection cannot be used
/// again.
fn close_if_refused(response: &mut Response) {
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Serves requests until the connection ends. After `end` the open request is the last one.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    place: Option<ConnectionPlace>,
    end: impl Future<Output = ()>,
) {
    let service = router.map_request(move |mut request: hyper::Request<Incoming>| {
        if let Some(place) = &place {
            request.extensions_mut().insert(place.clone());
        }
        request.map(Body::new)
    });
    let service =
        service.map_err(|error: Infallible| error).map_response(|mut response: Response| {
            close_if_refused(&mut response);
            response
        });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_DEADLINE);
    builder.max_buf_size(HEADERS);
    let connection =
        builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut connection = std::pin::pin!(connection.with_upgrades());
    let result = tokio::select! {
        result = &mut connection => result,
        () = end => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
    }
}
