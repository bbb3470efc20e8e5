//! Encrypted connections. The server of the tests speaks no TLS, so a proxy in front of it does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hob_domain::{AppFilter, AppStore};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::{connect, server};

/// Returns the path of a certificate or key in `tests/fixtures/tls`.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name)
}

/// Starts a proxy that presents the certificate `name`, agrees to encryption, and passes everything on to the server's
/// socket. It ends with its tasks.
async fn proxy(name: &str, server: PathBuf) -> (u16, JoinSet<()>) {
    let certificate = CertificateDer::from_pem_file(fixture(&format!("{name}.pem"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(fixture(&format!("{name}.key"))).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            let (server, acceptor) = (server.clone(), acceptor.clone());
            connections.spawn(async move {
                let mut request = [0; 8];
                client.read_exact(&mut request).await.unwrap();
                assert_eq!(request, [0, 0, 0, 8, 4, 210, 22, 47], "it asks for encryption first");
                client.write_all(b"S").await.unwrap();
                let Ok(mut client) = acceptor.accept(client).await else { return };
                let mut server = UnixStream::connect(server).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (port, tasks)
}

/// Connects through a proxy that presents `certificate`, and asserts whether that works.
async fn assert_connects(certificate: &str, cases: &[(&str, &str, Option<&str>, bool)]) {
    let database = server().database();
    let name = database.rsplit('/').next().unwrap();
    let (port, _tasks) = proxy(certificate, server().socket()).await;
    for (host, mode, root, works) in cases {
        let root = root.map(|root| format!("&sslrootcert={}", fixture(root).display()));
        let url = format!(
            "postgres://hob@{host}:{port}/{name}?sslmode={mode}{}",
            root.clone().unwrap_or_default()
        );
        let connected = connect(&url).await;
        assert_eq!(connected.is_ok(), *works, "{host} {mode} {root:?}: {:?}", connected.err());
        if let Ok(ledger) = connected {
            assert!(ledger.apps(AppFilter::All).await.unwrap().is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn self_signed_certificate_is_accepted_where_it_is_the_named_root() {
    let cases = [
        ("localhost", "require", None, true),
        ("localhost", "prefer", None, true),
        ("localhost", "verify-full", Some("own.pem"), true),
        ("127.0.0.1", "verify-ca", Some("own.pem"), true),
        ("127.0.0.1", "verify-full", Some("own.pem"), false),
        ("localhost", "verify-full", Some("other.pem"), false),
        ("localhost", "verify-ca", Some("other.pem"), false),
        ("localhost", "verify-full", None, false),
    ];
    assert_connects("own", &cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_certificate_is_accepted_with_its_root() {
    let cases = [
        ("localhost", "verify-full", Some("ca.pem"), true),
        ("127.0.0.1", "verify-ca", Some("ca.pem"), true),
        ("127.0.0.1", "verify-full", Some("ca.pem"), false),
        ("localhost", "verify-ca", Some("other.pem"), false),
        ("localhost", "verify-full", None, false),
    ];
    assert_connects("signed", &cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_certificate_is_refused_even_if_it_is_the_named_root() {
    let cases = [
        ("localhost", "require", None, true),
        ("localhost", "verify-ca", Some("expired.pem"), false),
        ("localhost", "verify-full", Some("expired.pem"), false),
    ];
    assert_connects("expired", &cases).await;
}

/// Nothing is sent to a server without encryption if the address requires it.
#[tokio::test(flavor = "multi_thread")]
async fn server_without_encryption_gets_nothing_where_it_is_required() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut asked = [0; 8];
        client.read_exact(&mut asked).await.unwrap();
        client.write_all(b"N").await.unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        rest
    });
    let url = format!("postgres://hob:s3cret@127.0.0.1:{port}/x?sslmode=require");
    assert!(connect(&url).await.is_err());
    assert_eq!(tasks.join_next().await.unwrap().unwrap(), b"", "no name and no password was sent");
}
