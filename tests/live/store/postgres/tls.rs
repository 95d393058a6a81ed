//! TLS as libpq means it, against a server with a certificate of an authority of the test's own.

use std::path::Path;

use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509Name};
use semel::store::StoreError;
use semel::store::postgres::PostgresStore;
use semel::store::postgres::options::PostgresOptions;

use super::super::subjects::blocking;
use super::{run, side, told};
use crate::support::services::{OwnServices, Service};

struct Signed {
    certificate: X509,
    key: PKey<Private>,
}

impl Signed {
    /// Signed by `by`, or by itself.
    fn make(name: &str, host: Option<&str>, by: Option<&Signed>) -> Signed {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("a curve");
        let key = PKey::from_ec_key(EcKey::generate(&group).expect("a key")).expect("a key");
        let mut subject = X509Name::builder().expect("a name");
        subject.append_entry_by_text("CN", name).expect("a name");
        let subject = subject.build();
        let mut builder = X509Builder::new().expect("a certificate");
        builder.set_version(2).expect("version");
        let serial = BigNum::from_u32(1).and_then(|n| n.to_asn1_integer()).expect("a number");
        builder.set_serial_number(&serial).expect("serial");
        builder.set_subject_name(&subject).expect("subject");
        builder.set_issuer_name(by.map_or(&subject, |by| by.certificate.subject_name())).expect("issuer");
        builder.set_not_before(&Asn1Time::days_from_now(0).expect("a time")).expect("from");
        builder.set_not_after(&Asn1Time::days_from_now(2).expect("a time")).expect("until");
        builder.set_pubkey(&key).expect("key");
        match host {
            None => {
                builder.append_extension(BasicConstraints::new().critical().ca().build().expect("a CA")).expect("a CA");
            }
            Some(host) => {
                let context = builder.x509v3_context(None, None);
                let names = SubjectAlternativeName::new().dns(host).build(&context).expect("names");
                builder.append_extension(names).expect("names");
            }
        }
        builder.sign(by.map_or(&key, |by| &by.key), MessageDigest::sha256()).expect("signed");
        Signed { certificate: builder.build(), key }
    }

    fn write(&self, path: &Path) -> String {
        std::fs::write(path, self.certificate.to_pem().expect("PEM")).expect("a file");
        path.display().to_string()
    }
}

#[test]
fn as_libpq_means_it() {
    run(async || {
        let own = blocking(|| OwnServices::start(&[Service::Postgres])).await;
        let url = own.services.postgres.clone();
        let (authority, stranger) = (Signed::make("an authority", None, None), Signed::make("a stranger", None, None));
        let server = Signed::make("the server", Some("localhost"), Some(&authority));
        let folder = tempfile::tempdir().expect("a folder");
        let root = authority.write(&folder.path().join("root.pem"));
        let wrong = stranger.write(&folder.path().join("wrong.pem"));

        let admin = side(&url.replace("//semel:", "//postgres:")).await;
        let pem = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        for (file, text) in [
            ("server.crt", pem(server.certificate.to_pem().expect("PEM"))),
            ("server.key", pem(server.key.private_key_to_pem_pkcs8().expect("PEM"))),
        ] {
            // In the data folder, by the server's own user, for nobody else to read.
            let lines = format!("SELECT unnest(string_to_array('{text}', E'\\n'))");
            let write = format!("COPY ({lines}) TO PROGRAM 'umask 077; cat > {file}'");
            admin.batch_execute(&write).await.expect("a file");
        }
        for set in ["ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()"] {
            admin.batch_execute(set).await.expect("set");
        }
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;

        let named = url.replace("@127.0.0.1:", "@localhost:");
        let cases = [
            (format!("{url}?sslmode=disable"), Ok("false")),
            (url.clone(), Ok("true")),
            (format!("{url}?sslmode=prefer"), Ok("true")),
            (format!("{url}?sslmode=require"), Ok("true")),
            (format!("{url}?sslmode=require&sslrootcert={root}"), Ok("true")),
            (format!("{url}?sslmode=require&sslrootcert={wrong}"), Err("certificate verify failed")),
            (format!("{url}?sslmode=verify-ca&sslrootcert={root}"), Ok("true")),
            (format!("{url}?sslmode=verify-ca&sslrootcert={wrong}"), Err("certificate verify failed")),
            (format!("{url}?sslmode=verify-ca"), Err("certificate verify failed")),
            (format!("{url}?sslmode=verify-full&sslrootcert={root}"), Err("mismatch")),
            (format!("{named}?sslmode=verify-full&sslrootcert={root}"), Ok("true")),
            (format!("{named}?sslmode=verify-full&sslrootcert={wrong}"), Err("certificate verify failed")),
            (format!("{named}?sslmode=verify-full&sslrootcert={root}.none"), Err("cannot use sslrootcert")),
        ];
        for (url, expected) in cases {
            let shown = url.split_once('@').expect("a URL").1;
            let connected = PostgresStore::connect_with(&PostgresOptions::new(&url), &|_| None).await;
            match (connected, expected) {
                (Ok(store), Ok(encrypted)) => {
                    let query = "SELECT bool_or(ssl)::text FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                        WHERE application_name = 'semel'";
                    let found: String = admin.query_one(query, &[]).await.expect("a row").get(0);
                    assert_eq!(found, encrypted, "{shown}");
                    drop(store);
                }
                (Err(error), Err(words)) => assert!(told(&error).contains(words), "{shown}: {}", told(&error)),
                (Ok(_), Err(words)) => panic!("{shown}: connected, though {words}"),
                (Err(error), Ok(_)) => panic!("{shown}: {}", told(&error)),
            }
        }
        // From the environment, where the URL is silent.
        let environment = |name: &str| match name {
            "PGSSLMODE" => Some("verify-full".to_owned()),
            "PGSSLROOTCERT" => Some(wrong.clone()),
            _ => None,
        };
        let refused = PostgresStore::connect_with(&PostgresOptions::new(&named), &environment).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        blocking(move || drop(own)).await;
    });
}
