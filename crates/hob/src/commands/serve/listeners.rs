//! The listeners of the socket and of HTTP.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use anyhow::Context as _;
use listenfd::ListenFd;

use crate::settings::Resolved;
use crate::socket;

/// The listeners, bound before anything else starts.
pub struct Listeners {
    pub unix: UnixListener,
    /// The path of the socket, to be removed at the end; `None` for a socket that systemd passed
    /// in.
    pub bound: Option<PathBuf>,
    /// `None` if HTTP is off.
    pub tcp: Option<TcpListener>,
}

impl Listeners {
    /// Takes the sockets that the service manager passed in, and binds the others.
    pub fn bind(settings: &Resolved) -> anyhow::Result<Listeners> {
        let (mut unix, mut tcp) = (None, None);
        let mut passed = ListenFd::from_env();
        for index in 0..passed.len() {
            // Asking for the wrong kind is an error that leaves the descriptor in place.
            if let Ok(Some(listener)) = passed.take_unix_listener(index) {
                unix = Some(listener);
            } else if let Ok(Some(listener)) = passed.take_tcp_listener(index) {
                tcp = Some(listener);
            }
        }
        if settings.values.http && tcp.is_none() {
            tcp = Some(bind_http(&settings.values.listen)?);
        }
        let (unix, bound) = match unix {
            Some(listener) => (listener, None),
            None => (socket::bind(&settings.socket)?, Some(settings.socket.clone())),
        };
        unix.set_nonblocking(true)?;
        let tcp = tcp.filter(|_| settings.values.http);
        if let Some(tcp) = &tcp {
            tcp.set_nonblocking(true)?;
        }
        Ok(Listeners { unix, bound, tcp })
    }
}

fn bind_http(address: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).with_context(|| {
        format!(
            "cannot listen on {address} (if another program uses the port, choose another one with \
             --listen 127.0.0.1:PORT)"
        )
    })
}
