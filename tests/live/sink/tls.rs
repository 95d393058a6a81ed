//! TLS: a terminator before each broker, with a certificate that only those trust who were told to.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::ssl::{SslAcceptor, SslMethod};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509Name, X509NameBuilder};
use semel::sink::nats::{NatsOptions, NatsSink, Servers};
use semel::sink::rabbitmq::{RabbitOptions, RabbitSink, Server};
use semel::sink::{Destination, Sink};

use super::kit::{all_confirmed, forward, texts};
use super::subjects::{OwnStreams, Queues};
use super::{Broker, run};
use crate::support::services::{Services, port_of};

#[test]
fn rabbitmq() {
    run(async {
        let services = Services::shared();
        let queues = Queues::make_all(&services, "classic", None).await;
        let tls = Terminator::start(port_of(&services.rabbitmq.url), false);
        let with = |host: &str, ca_file: Option<PathBuf>| {
            let hosts = vec![format!("{host}:{}", tls.port)];
            let server = Server { hosts, tls: true, ca_file, ..queues.server.clone() };
            RabbitSink::new(RabbitOptions { server, ..queues.options() })
        };
        shown(&mut with("localhost", Some(tls.ca_file())), &queues).await;
        with("localhost", None).check().await.expect_err("nobody vouches for it");
        with("127.0.0.1", Some(tls.ca_file())).check().await.expect_err("it is for another name");
    });
}

#[test]
fn nats() {
    run(async {
        let services = Services::shared();
        let streams = OwnStreams::make_all(&services, None).await;
        let tls = Terminator::start(port_of(&services.nats), true);
        let with = |host: &str, ca_file: Option<PathBuf>| {
            let hosts = vec![format!("{host}:{}", tls.port)];
            let servers = Servers { hosts, tls: true, ca_file, ..streams.servers.clone() };
            NatsSink::new(NatsOptions { servers, ..streams.options() })
        };
        shown(&mut with("localhost", Some(tls.ca_file())), &streams).await;
        with("localhost", None).check().await.expect_err("nobody vouches for it");
        with("127.0.0.1", Some(tls.ca_file())).check().await.expect_err("it is for another name");
    });
}

async fn shown(sink: &mut dyn Sink, broker: &dyn Broker) {
    sink.check().await.expect("a connection");
    all_confirmed(&sink.publish(&[forward("a"), forward(&"x".repeat(100_000))]).await);
    assert_eq!(texts(&broker.take(Destination::Forward).await)[0], "a");
}

struct Terminator {
    port: u16,
    folder: tempfile::TempDir,
}

impl Terminator {
    /// `greets`: the server's first line goes in plain text, as NATS wants it. Its threads end with the test.
    fn start(upstream: u16, greets: bool) -> Terminator {
        let folder = tempfile::tempdir().expect("a folder");
        let Certificates { authority, server, key } = certificates();
        std::fs::write(folder.path().join("ca.pem"), authority.to_pem().expect("PEM")).expect("written");
        let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).expect("an acceptor");
        acceptor.set_private_key(&key).expect("a key");
        acceptor.set_certificate(&server).expect("a certificate");
        let acceptor = Arc::new(acceptor.build());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let acceptor = acceptor.clone();
                std::thread::spawn(move || drop(serve(client, upstream, &acceptor, greets)));
            }
        });
        Terminator { port, folder }
    }

    fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }
}

fn serve(mut client: TcpStream, upstream: u16, acceptor: &SslAcceptor, greets: bool) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", upstream))?;
    let mut byte = [0];
    while greets && byte != [b'\n'] {
        server.read_exact(&mut byte)?;
        client.write_all(&byte)?;
    }
    let mut client = acceptor.accept(client).map_err(std::io::Error::other)?;
    let patience = Some(Duration::from_millis(2));
    client.get_ref().set_read_timeout(patience)?;
    server.set_read_timeout(patience)?;
    let mut buffer = vec![0; 1 << 16];
    while pass(&mut client, &mut server, &mut buffer)? && pass(&mut server, &mut client, &mut buffer)? {}
    Ok(())
}

/// Passes on what is there; false at its end.
fn pass(from: &mut impl Read, to: &mut impl Write, buffer: &mut [u8]) -> std::io::Result<bool> {
    match from.read(buffer) {
        Ok(0) => Ok(false),
        Ok(bytes) => to.write_all(&buffer[..bytes]).map(|()| true),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(true),
        Err(error) => Err(error),
    }
}

struct Certificates {
    authority: X509,
    server: X509,
    /// The server's.
    key: PKey<Private>,
}

/// For `localhost`, by an authority of their own.
fn certificates() -> Certificates {
    let (authority_key, key) = (new_key(), new_key());
    let (authority_name, name) = (named("tests of semel"), named("localhost"));
    let mut authority = unsigned(&authority_name, &authority_name, &authority_key);
    authority.append_extension(BasicConstraints::new().critical().ca().build().expect("it is")).expect("an authority");
    authority.sign(&authority_key, MessageDigest::sha256()).expect("a signature");
    let authority = authority.build();
    let mut server = unsigned(&name, &authority_name, &key);
    let names = SubjectAlternativeName::new().dns("localhost").build(&server.x509v3_context(Some(&authority), None));
    server.append_extension(names.expect("it is")).expect("a name");
    server.sign(&authority_key, MessageDigest::sha256()).expect("a signature");
    Certificates { authority, server: server.build(), key }
}

fn unsigned(subject: &X509Name, issuer: &X509Name, key: &PKey<Private>) -> X509Builder {
    let mut serial = BigNum::new().expect("a number");
    serial.rand(120, MsbOption::MAYBE_ZERO, false).expect("a number");
    let mut x509 = X509::builder().expect("a certificate");
    x509.set_version(2).expect("version 3");
    x509.set_serial_number(&serial.to_asn1_integer().expect("a number")).expect("a serial number");
    x509.set_subject_name(subject).expect("a name");
    x509.set_issuer_name(issuer).expect("a name");
    x509.set_pubkey(key).expect("a key");
    x509.set_not_before(&Asn1Time::days_from_now(0).expect("a day")).expect("a day");
    x509.set_not_after(&Asn1Time::days_from_now(2).expect("a day")).expect("a day");
    x509
}

fn new_key() -> PKey<Private> {
    PKey::from_rsa(Rsa::generate(2048).expect("a key")).expect("a key")
}

fn named(name: &str) -> X509Name {
    let mut named = X509NameBuilder::new().expect("a name");
    named.append_entry_by_text("CN", name).expect("a name");
    named.build()
}
