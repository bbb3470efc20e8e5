//! A proxy between a node and its database that can cut connections, refuse them, or hold their bytes back.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Through,
    Refuse,
    Swallow,
    Over,
}

/// Listens on a free port and forwards everything to a server's socket. Dropping it cuts all connections.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: PathBuf,
    mode: Mutex<Mode>,
    changed: Condvar,
    pairs: Mutex<Vec<(TcpStream, UnixStream)>>,
}

impl Proxy {
    /// Starts a proxy to the socket of a server.
    pub fn to(target: &Path) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            target: target.to_owned(),
            mode: Mutex::new(Mode::Through),
            changed: Condvar::new(),
            pairs: Mutex::default(),
        });
        let of_thread = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                match of_thread.mode() {
                    Mode::Over => return,
                    Mode::Refuse => {}
                    Mode::Through | Mode::Swallow => of_thread.join(client),
                }
            }
        });
        Proxy { address, shared }
    }

    /// Returns the address of a database through this proxy, for the role `hob`.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://hob@{}/{database}", self.address)
    }

    /// Forwards everything. Bytes that were held back arrive late, as after a network partition.
    pub fn pass(&self) {
        self.shared.set(Mode::Through);
    }

    /// Holds back all bytes in both directions without closing anything.
    pub fn swallow(&self) {
        self.shared.set(Mode::Swallow);
    }

    /// Cuts all connections, and every new one as soon as it is made.
    pub fn refuse(&self) {
        self.shared.set(Mode::Refuse);
        self.cut();
    }

    /// Cuts all connections; new ones can be made.
    pub fn cut(&self) {
        for (client, server) in self.shared.pairs().drain(..) {
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.set(Mode::Over);
        self.cut();
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn mode(&self) -> Mode {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
        self.changed.notify_all();
    }

    fn pairs(&self) -> MutexGuard<'_, Vec<(TcpStream, UnixStream)>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(self: &Arc<Shared>, client: TcpStream) {
        let Ok(server) = UnixStream::connect(&self.target) else { return };
        let _ = client.set_nodelay(true);
        let copies =
            (client.try_clone(), server.try_clone(), client.try_clone(), server.try_clone());
        let (Ok(from_client), Ok(to_server), Ok(to_client), Ok(from_server)) = copies else {
            return;
        };
        self.pairs().push((client, server));
        let there = self.clone();
        std::thread::spawn(move || {
            there.carry(from_client, &to_server);
            let _ = to_server.shutdown(Shutdown::Both);
        });
        let back = self.clone();
        std::thread::spawn(move || {
            back.carry(from_server, &to_client);
            let _ = to_client.shutdown(Shutdown::Both);
        });
    }

    fn carry(&self, mut from: impl Read, mut to: impl Write) {
        let mut piece = vec![0; 64 << 10];
        loop {
            let length = from.read(&mut piece).unwrap_or(0);
            let mut mode = self.mode.lock().unwrap_or_else(PoisonError::into_inner);
            while *mode == Mode::Swallow {
                mode = self.changed.wait(mode).unwrap_or_else(PoisonError::into_inner);
            }
            drop(mode);
            if length == 0 || to.write_all(&piece[..length]).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    /// With an echo server: held bytes come late and whole, cut connections end, refused ones hear nothing.
    #[test]
    fn proxy_passes_swallows_cuts_and_refuses() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("echo");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
            }
        });
        let proxy = Proxy::to(&path);
        let connect = || {
            let stream = TcpStream::connect(proxy.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            stream
        };
        let mut stream = connect();
        let mut word = [0; 5];
        stream.write_all(b"hello").unwrap();
        stream.read_exact(&mut word).unwrap();
        proxy.swallow();
        stream.write_all(b"later").unwrap();
        assert!(stream.read_exact(&mut word).is_err());
        proxy.pass();
        stream.set_read_timeout(None).unwrap();
        stream.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"later");
        proxy.cut();
        assert_eq!(stream.read(&mut word).unwrap_or(0), 0);
        proxy.refuse();
        let mut refused = connect();
        let _ = refused.write_all(b"hello");
        assert_eq!(refused.read(&mut word).unwrap_or(0), 0);
        proxy.pass();
        let mut again = connect();
        again.write_all(b"again").unwrap();
        again.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"again");
    }
}
