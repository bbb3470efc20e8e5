//! The way to the server, encrypted. The server of the tests speaks no TLS, so something stands before it that does.

use std::path::{Path, PathBuf};
use std::pin::Pin;

use hob_domain::AppStore;
use hob_store::PostgresLedger;
use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::ssl::{Ssl, SslAcceptor, SslMethod};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509NameBuilder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio::task::JoinSet;
use tokio_openssl::SslStream;

use super::server;

/// A certificate that vouches for itself, made out to a name.
fn certificate(name: &str) -> (X509, PKey<Private>) {
    let key = PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap();
    let mut subject = X509NameBuilder::new().unwrap();
    subject.append_entry_by_text("CN", name).unwrap();
    let subject = subject.build();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder.set_serial_number(&BigNum::from_u32(1).unwrap().to_asn1_integer().unwrap()).unwrap();
    builder.set_subject_name(&subject).unwrap();
    builder.set_issuer_name(&subject).unwrap();
    builder.set_pubkey(&key).unwrap();
    builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
    builder.append_extension(BasicConstraints::new().ca().build().unwrap()).unwrap();
    let context = builder.x509v3_context(None, None);
    let names = SubjectAlternativeName::new().dns(name).build(&context).unwrap();
    builder.append_extension(names).unwrap();
    builder.sign(&key, MessageDigest::sha256()).unwrap();
    (builder.build(), key)
}

/// Takes connections, says yes to encryption, and passes on what comes to the server's socket. Ends with its tasks.
async fn front(certificate: &X509, key: &PKey<Private>, server: PathBuf) -> (u16, JoinSet<()>) {
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).unwrap();
    acceptor.set_certificate(certificate).unwrap();
    acceptor.set_private_key(key).unwrap();
    let acceptor = acceptor.build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            let (server, context) = (server.clone(), acceptor.context().to_owned());
            connections.spawn(async move {
                let mut asked = [0; 8];
                client.read_exact(&mut asked).await.unwrap();
                assert_eq!(asked, [0, 0, 0, 8, 4, 210, 22, 47], "it asks for encryption first");
                client.write_all(b"S").await.unwrap();
                let mut client = SslStream::new(Ssl::new(&context).unwrap(), client).unwrap();
                if Pin::new(&mut client).accept().await.is_err() {
                    return;
                }
                let mut server = UnixStream::connect(server).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (port, tasks)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_must_be_known_is_known_by_certificate_and_name() {
    let database = server().database();
    let name = database.rsplit('/').next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &Path, certificate: &X509| {
        std::fs::write(path, certificate.to_pem().unwrap()).unwrap();
    };
    let (own, key) = certificate("localhost");
    let (stranger, _) = certificate("localhost");
    let (root, other) = (folder.path().join("own.pem"), folder.path().join("other.pem"));
    write(&root, &own);
    write(&other, &stranger);
    let (port, _tasks) = front(&own, &key, server().socket()).await;
    for (host, words, works) in [
        ("localhost", "sslmode=require".to_owned(), true),
        ("localhost", String::new(), true),
        ("localhost", format!("sslmode=verify-full&sslrootcert={}", root.display()), true),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={}", root.display()), true),
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={}", root.display()), false),
        ("localhost", format!("sslmode=verify-full&sslrootcert={}", other.display()), false),
        ("localhost", format!("sslmode=verify-ca&sslrootcert={}", other.display()), false),
        ("localhost", "sslmode=verify-full".to_owned(), false),
    ] {
        let url = format!("postgres://hob@{host}:{port}/{name}?{words}");
        let connected = PostgresLedger::connect(&url.parse().unwrap()).await;
        assert_eq!(connected.is_ok(), works, "{host} {words}: {:?}", connected.err());
        if let Ok(ledger) = connected {
            assert!(ledger.list_apps().await.unwrap().is_empty());
        }
    }
}

/// Where encryption is required, a server that has none is not talked to.
#[tokio::test(flavor = "multi_thread")]
async fn without_encryption_nothing_is_said_where_it_is_required() {
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
    assert!(PostgresLedger::connect(&url.parse().unwrap()).await.is_err());
    assert_eq!(tasks.join_next().await.unwrap().unwrap(), b"", "not a word, no name, no password");
}
