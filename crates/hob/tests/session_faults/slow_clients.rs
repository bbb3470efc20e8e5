//! Clients that send their headers a byte at a time. Others are served as if they were not there, and in the
//! end they are cut off.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hob_testkit::leak::descriptors;
use hob_testkit::{HobServer, Stopwatch, is_campaign, wait_until};

use crate::setup::{home, memory};

/// How many there are.
const SLOW: usize = 200;
/// Other clients get their answers within this time, as they do without slow clients.
const IN_TIME: Duration = Duration::from_secs(2);

/// Opens slow connections, each with the beginning of a request.
fn slow_clients(server: &HobServer, begin: &str) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(server.address()).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.write_all(begin.as_bytes()).expect("the beginning is taken");
        stream
    };
    (0..SLOW).map(open).collect()
}

/// Sends each a byte at a time until all are cut off or `stop` is set. Returns when the last one was cut off.
fn trickle(clients: Vec<TcpStream>, stop: &AtomicBool) -> Option<Duration> {
    let begin = Stopwatch::start();
    let mut clients = clients;
    while !clients.is_empty() && !stop.load(Ordering::Relaxed) {
        clients.retain_mut(|client| {
            let written = client.write_all(b"x").is_ok();
            let _ = client.set_nonblocking(true);
            let open = !matches!(client.read(&mut [0; 512]), Ok(0));
            let _ = client.set_nonblocking(false);
            written && open
        });
        std::thread::sleep(Duration::from_millis(100));
    }
    clients.is_empty().then(|| begin.elapsed())
}

#[test]
fn slow_clients_are_cut_off_and_delay_nobody() {
    let home = home("");
    let server = home.serve();
    let token = home.app("slow");
    let client = server.client(&token);
    let id = client.session();
    client.ask(&id, "hello");
    let (before, open) = (memory(server.pid(), "VmRSS"), descriptors(server.pid()));
    let path = format!("/sessions/{id}");
    let mut slowest = Duration::ZERO;
    let mut look = || {
        let begin = Stopwatch::start();
        assert_eq!(client.get(&path).status, 200);
        slowest = slowest.max(begin.elapsed());
    };
    let stop = AtomicBool::new(false);
    let headers = slow_clients(&server, "GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: ");
    let bodies = slow_clients(
        &server,
        &format!(
            "POST /sessions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
             content-length: 1000000\r\n\r\n{{\"agent\":\""
        ),
    );
    let (cut_headers, cut_bodies) = std::thread::scope(|scope| {
        let headers = scope.spawn(|| trickle(headers, &stop));
        let bodies = scope.spawn(|| trickle(bodies, &stop));
        for _ in 0..200 {
            look();
        }
        client.ask(&id, "hello again");
        let most = memory(server.pid(), "VmRSS");
        println!(
            "slow clients: {} slow connections, RSS {before:.0} MB before, {most:.0} MB",
            2 * SLOW
        );
        assert!(most < before + 48.0, "{before} MB grew to {most} MB");
        let cut = headers.join().expect("no panic");
        // Bodies have longer, and only the campaign waits for that.
        stop.store(!is_campaign(), Ordering::Relaxed);
        (cut, bodies.join().expect("no panic"))
    });
    for _ in 0..50 {
        look();
    }
    println!(
        "slow clients: headers cut off after {cut_headers:?}, bodies after {cut_bodies:?}, slowest answer {} ms",
        slowest.as_millis()
    );
    assert!(cut_headers.is_some_and(|time| time < Duration::from_secs(25)), "{cut_headers:?}");
    assert!(!is_campaign() || cut_bodies.is_some(), "slow bodies are cut off, too");
    assert!(slowest < IN_TIME, "another client waited {slowest:?}");
    wait_until("nothing of them is left open", || {
        (descriptors(server.pid()) <= open + 16).then_some(())
    });
    assert!(server.stop().success());
}
