//! `amqp://user:password@host:port,…/path?name=value`: a broker's servers, who logs in there, and what follows them.
//!
//! No word of the URL itself is in an error: a password may be anywhere in one that is wrong.

use percent_encoding::percent_decode_str;

use super::kafka_url::{address, parameters};
use super::mask::Secret;
use super::reader::Reader;
use super::setting::Setting;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Servers {
    /// `host:port` each, an IPv6 address in brackets. Any of them will do.
    pub hosts: Vec<String>,
    pub tls: bool,
    pub user: Option<String>,
    /// Without a user it is a token.
    pub password: Option<Secret>,
}

impl Servers {
    /// Whether one and the same server is among both.
    pub(super) fn meet(&self, other: &Servers) -> bool {
        self.hosts.iter().any(|host| other.hosts.contains(host))
    }

    /// Takes the password out of its own setting. `token`: it may stand without a user.
    pub(super) fn log_in(&mut self, reader: &Reader<'_>, url: &'static Setting, own: &'static Setting, token: bool) {
        let Some(password) = reader.optional(own, || reader.text(own)).flatten() else {
            if self.user.is_some() && self.password.is_none() {
                reader.problem_with(url, format!("its user has no password: see {}", own.name));
            }
            return;
        };
        if self.password.is_some() {
            reader.problem_with(own, format!("the URL of {} holds a password too", url.name));
        } else if self.user.is_none() && !token {
            reader.problem_with(own, format!("the URL of {} names no user", url.name));
        }
        self.password = Some(Secret(password));
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServersUrl {
    pub servers: Servers,
    /// None where nothing stands behind the `/`.
    pub path: Option<String>,
    parameters: Vec<(String, String)>,
}

/// How a scheme is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scheme {
    /// `amqp://`
    pub begins: &'static str,
    pub tls: bool,
    pub port: u16,
}

impl ServersUrl {
    /// `known`: the parameters that mean something.
    pub fn parse(text: &str, schemes: &[Scheme], known: &[&str]) -> Result<ServersUrl, String> {
        let found = schemes.iter().find_map(|scheme| Some((scheme, text.strip_prefix(scheme.begins)?)));
        let begins = || schemes.iter().map(|scheme| scheme.begins).collect::<Vec<_>>().join(" or ");
        let (scheme, rest) = found.ok_or_else(|| format!("it must begin with {}", begins()))?;
        if text.contains(char::is_whitespace) {
            return Err("there is white space in it".to_owned());
        }
        let (front, query) = rest.split_once('?').unwrap_or((rest, ""));
        if query.contains('@') {
            return Err("an `@` stands behind its `?`: in a password `?` is written %3F, in a name `@` %40".to_owned());
        }
        let (login, place) = match front.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, front),
        };
        if login.is_some_and(|login| login.contains(['/', '@'])) {
            return Err("in a password `/` is written %2F and `@` %40".to_owned());
        }
        let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
        let hosts = match hosts {
            "" => Vec::new(),
            _ => hosts.split(',').map(|host| address(host, scheme.port)).collect::<Result<_, _>>().map_err(|_| HOST)?,
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            Some((user, password)) => (Some(decoded(user)?), Some(decoded(password)?)),
            None => (None, None),
        };
        let [user, password] = [user, password].map(|text| text.filter(|text| !text.is_empty()));
        if hosts.is_empty() && user.is_some() {
            return Err("it names a user and no host".to_owned());
        }
        if user.is_none() && password.is_some() {
            return Err("it holds a password and names no user".to_owned());
        }
        Ok(ServersUrl {
            servers: Servers { hosts, tls: scheme.tls, user, password: password.map(Secret) },
            path: Some(decoded(path)?).filter(|path| !path.is_empty()),
            parameters: parameters(query, known)?,
        })
    }

    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A parameter that must be there.
    pub fn needed(&self, name: &str) -> Result<String, String> {
        self.parameter(name).map(str::to_owned).ok_or_else(|| format!("it names no {name} (`?{name}=…`)"))
    }

    pub fn count(&self, name: &str, default: u16) -> Result<u16, String> {
        let Some(text) = self.parameter(name) else { return Ok(default) };
        let count = text.parse().ok().filter(|count| *count > 0);
        count.ok_or_else(|| format!("`{name}` is not a whole number from 1 to {}", u16::MAX))
    }
}

const HOST: &str = "what stands for a host is not HOST or HOST:PORT";

fn decoded(text: &str) -> Result<String, String> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| "a part of it is not UTF-8".to_owned())?;
    if text.chars().any(char::is_control) {
        return Err("there is a control character in it".to_owned());
    }
    Ok(text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMES: &[Scheme] =
        &[Scheme { begins: "amqp://", tls: false, port: 5672 }, Scheme { begins: "amqps://", tls: true, port: 5671 }];

    fn parse(text: &str) -> Result<ServersUrl, String> {
        ServersUrl::parse(text, SCHEMES, &["queue", "prefetch"])
    }

    #[test]
    fn servers_and_who_logs_in() {
        type Right<'a> = (&'a [&'a str], bool, Option<&'a str>, Option<&'a str>, Option<&'a str>);
        let cases: &[(&str, Right<'_>, &str)] = &[
            ("amqp://h", (&["h:5672"], false, None, None, None), "the usual port"),
            ("amqps://h1,h2:1/v", (&["h1:5671", "h2:1"], true, None, None, Some("v")), "several, TLS, a path"),
            ("amqp://u:p@[::1]:1/%2f", (&["[::1]:1"], false, Some("u"), Some("p"), Some("/")), "IPv6, a log-in"),
            ("amqp://u:a%40%2Fb:c@h/", (&["h:5672"], false, Some("u"), Some("a@/b:c"), None), "escapes in a password"),
            ("amqp://u@h", (&["h:5672"], false, Some("u"), None, None), "its password is elsewhere"),
            ("amqp:///v", (&[], false, None, None, Some("v")), "the source's servers"),
        ];
        for (text, right, why) in cases {
            let url = parse(text).expect(why);
            let servers = &url.servers;
            let hosts: Vec<&str> = servers.hosts.iter().map(String::as_str).collect();
            let password = servers.password.as_ref().map(Secret::expose);
            let found = (&hosts[..], servers.tls, servers.user.as_deref(), password, url.path.as_deref());
            assert_eq!(found, *right, "{text}: {why}");
        }
        let url = parse("amqp://h?queue=a%20b&prefetch=7").expect("a URL");
        assert_eq!((url.needed("queue"), url.count("prefetch", 1)), (Ok("a b".into()), Ok(7)));
        assert_eq!(parse("amqp://h").and_then(|url| url.count("prefetch", 9)), Ok(9), "the default");
    }

    #[test]
    fn texts_that_are_no_url() {
        let cases = [
            ("http://h", "it must begin with amqp:// or amqps://"),
            ("amqp://u:secret", HOST),
            ("amqp://u:se/cret@h", "in a password `/` is written %2F and `@` %40"),
            ("amqp://u:se@cret@h", "in a password `/` is written %2F and `@` %40"),
            ("amqp://u:se?cret@h", "an `@` stands behind its `?`: in a password `?` is written %3F, in a name `@` %40"),
            ("amqp://u:sec ret@h", "there is white space in it"),
            ("amqp://u:%FF@h", "a part of it is not UTF-8"),
            ("amqp://u:%0a@h", "there is a control character in it"),
            ("amqp://u:p@/v", "it names a user and no host"),
            ("amqp://:p@h", "it holds a password and names no user"),
            ("amqp://h?que=q", "it takes queue, prefetch and not `que`"),
        ];
        for (text, problem) in cases {
            assert_eq!(parse(text), Err(problem.into()), "{text}");
        }
        let count = |text| parse(text).and_then(|url| url.count("prefetch", 1));
        for text in ["amqp://h?prefetch=0", "amqp://h?prefetch=65536", "amqp://h?prefetch=x"] {
            assert_eq!(count(text), Err("`prefetch` is not a whole number from 1 to 65535".into()), "{text}");
        }
        assert_eq!(parse("amqp://h").and_then(|url| url.needed("queue")), Err("it names no queue (`?queue=…`)".into()));
    }

    proptest::proptest! {
        #[test]
        fn no_error_holds_a_word_of_the_url(before in "[a-z:/?#@%,\\[\\]]{0,4}", behind in "[a-z:/?#@%,]{0,4}") {
            let secret = format!("amqp://u:{before}qX7{behind}@h/v");
            if let Err(error) = parse(&secret) {
                proptest::prop_assert!(!error.contains("qX7"), "{}: {}", secret, error);
            }
        }
    }
}
