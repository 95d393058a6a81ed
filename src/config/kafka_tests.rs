use super::*;
use crate::config::testing::{config, problems};

#[test]
fn properties_reach_their_side() {
    let config = config(&[
        ("SEMEL_KAFKA_SECURITY_PROTOCOL", "SSL"),
        ("SEMEL_KAFKA_CLIENT_ID", "both"),
        ("SEMEL_SOURCE_KAFKA_CLIENT_ID", "source"),
        ("SEMEL_KAFKA_LINGER_MS", "7"),
        ("SEMEL_KAFKA_FETCH_MIN_BYTES", "8"),
        ("SEMEL_SINK_KAFKA_COMPRESSION_TYPE", "zstd"),
    ])
    .expect("valid");
    let shown = |properties: &Properties| format!("{properties:?}");
    assert_eq!(
        shown(&config.source.properties),
        r#"{"client.id": "source", "fetch.min.bytes": "8", "security.protocol": "SSL"}"#
    );
    assert_eq!(
        shown(&config.sink.properties),
        r#"{"client.id": "both", "compression.type": "zstd", "linger.ms": "7", "security.protocol": "SSL"}"#
    );
}

#[test]
fn properties_that_are_refused() {
    let cases = [
        ("SEMEL_KAFKA_NO_SUCH_THING", "1", "librdkafka has no property no.such.thing"),
        (
            "SEMEL_KAFKA_SECURITY_PROTOCOL",
            "TLS",
            r#"Invalid value "TLS" for configuration property "security.protocol""#,
        ),
        (
            "SEMEL_KAFKA_ISOLATION_LEVEL",
            "read_uncommitted",
            "isolation.level cannot be set: a reader of uncommitted records would claim what an abort takes back",
        ),
        ("SEMEL_SOURCE_KAFKA_GROUP_ID", "g", "group.id cannot be set: the group is named in the URL of SEMEL_SOURCE"),
        ("SEMEL_SINK_KAFKA_SSL_KEY", "x", "ssl.key cannot be set: it is for programs, not for settings"),
        ("SEMEL_SINK_KAFKA_FETCH_MIN_BYTES", "1", "fetch.min.bytes is a property of consumers"),
        ("SEMEL_SOURCE_KAFKA_LINGER_MS", "1", "linger.ms is a property of producers"),
        (
            "SEMEL_KAFKA_SASL_OAUTHBEARER_METHOD",
            "oidc",
            "sasl.oauthbearer.method cannot be set: tokens for OAUTHBEARER come from the file that \
             SEMEL_OAUTH_TOKEN_FILE names",
        ),
        ("SEMEL_KAFKA_REBALANCE_CB", "1", "rebalance.cb cannot be set: it is for programs, not for settings"),
    ];
    for (name, value, right) in cases {
        assert_eq!(problems(&[(name, value)]), [format!("{name} (environment): {right}")], "{name}={value}");
    }
    assert_eq!(problems(&[("SEMEL_KAFKA_", "x")]), ["SEMEL_KAFKA_ (environment): there is no such setting"]);
    for (property, why) in REFUSED {
        let name = Place::name(Side::Both, property);
        let right = format!("{name} (environment): {} cannot be set: {why}", property.replace('_', "."));
        assert_eq!(problems(&[(&name, "1")]), [right], "whatever its value");
    }
}

#[test]
fn security_that_would_not_be() {
    let sasl = ("SEMEL_KAFKA_SECURITY_PROTOCOL", "SASL_SSL");
    let scram = ("SEMEL_KAFKA_SASL_MECHANISM", "SCRAM-SHA-256");
    let oauth = ("SEMEL_KAFKA_SASL_MECHANISM", "OAUTHBEARER");
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        (
            &[("SEMEL_KAFKA_SSL_CA_LOCATION", "/ca")],
            &["SEMEL_KAFKA_SSL_CA_LOCATION: it has no effect while SEMEL_KAFKA_SECURITY_PROTOCOL is plaintext"],
        ),
        (
            &[("SEMEL_SINK_KAFKA_SASL_USERNAME", "u"), ("SEMEL_KAFKA_SECURITY_PROTOCOL", "SSL")],
            &["SEMEL_SINK_KAFKA_SASL_USERNAME: it has no effect while SEMEL_KAFKA_SECURITY_PROTOCOL is ssl"],
        ),
        (&[sasl], &["SEMEL_KAFKA_SASL_MECHANISM: it must be given with sasl_ssl"]),
        (
            &[sasl, scram],
            &["SEMEL_KAFKA_SASL_USERNAME: it must be given", "SEMEL_KAFKA_SASL_PASSWORD: it must be given"],
        ),
        (&[sasl, ("SEMEL_KAFKA_SASL_MECHANISM", "GSSAPI")], &["SEMEL_KAFKA_SASL_MECHANISM: Kerberos is not built in"]),
        (&[sasl, oauth], &["SEMEL_OAUTH_TOKEN_FILE: OAUTHBEARER needs it"]),
        (
            &[("SEMEL_OAUTH_TOKEN_FILE", "/token")],
            &["SEMEL_OAUTH_TOKEN_FILE (environment): it has no effect: no side uses OAUTHBEARER"],
        ),
    ];
    for (changes, right) in cases {
        assert_eq!(problems(changes), *right, "{changes:?}");
    }
    let sound: &[(&str, &str)] = &[sasl, scram, ("SEMEL_KAFKA_SASL_USERNAME", "u"), ("SEMEL_KAFKA_SASL_PASSWORD", "p")];
    assert_eq!(problems(sound), Vec::<String>::new());
    assert_eq!(problems(&[sasl, oauth, ("SEMEL_OAUTH_TOKEN_FILE", "/token")]), Vec::<String>::new());
}

/// A name that the library does not know would route or protect nothing.
#[test]
fn the_listed_properties_exist() {
    let is_known = |name: &str| {
        let set = ClientConfig::new().set(name, "1").create_native_config();
        !matches!(set, Err(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..)))
    };
    let refused = REFUSED.iter().map(|(name, _)| *name);
    let listed = SOURCE_ONLY.iter().chain(SINK_ONLY).chain(SECRET).copied().chain(refused);
    let unknown: Vec<&str> = listed.filter(|name| !is_known(name)).collect();
    assert_eq!(unknown, Vec::<&str>::new());
    assert!(!is_known("no.such.thing"), "and it tells what it does not know");
}
