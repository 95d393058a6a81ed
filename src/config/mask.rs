//! Secrets, and texts that hold one.

use std::fmt;

/// What stands in a secret's place.
pub const MASK: &str = "***";

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl Secret {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

/// A URL, or what was meant to be one, without its passwords: those of user and query.
pub fn url(text: &str) -> String {
    let (scheme, rest) = text.split_at(text.find("://").map_or(0, |at| at + 3));
    let (front, query) = rest.split_once('?').map_or((rest, None), |(front, query)| (front, Some(query)));
    // A password with an unescaped `/`, `?` or `@` in it is a mistake of which nothing may be shown.
    if query.is_some_and(|query| query.contains('@')) {
        return format!("{scheme}{}:{MASK}", front.split(':').next().unwrap_or_default());
    }
    let front = match front.rsplit_once('@') {
        Some((user, host)) if user.contains(':') => {
            format!("{}:{MASK}@{host}", user.split(':').next().unwrap_or_default())
        }
        // `user:password` with the rest forgotten.
        _ if !scheme.is_empty() && !has_ports(front) => {
            format!("{}:{MASK}", front.split(':').next().unwrap_or_default())
        }
        _ => front.into(),
    };
    let query = query.map_or_else(String::new, |query| format!("?{}", parameters(query)));
    format!("{scheme}{front}{query}")
}

/// Whether digits stand where ports do.
fn has_ports(front: &str) -> bool {
    let hosts = front.split('/').next().unwrap_or_default();
    hosts.split(',').all(|host| {
        let behind = host.rsplit_once(']').map_or(host, |(_, behind)| behind);
        behind.split_once(':').is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// Nothing that follows a password is shown: it may be the rest of one with an unescaped `&` in it.
fn parameters(query: &str) -> String {
    let mut shown = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some((name, _)) if name.to_ascii_lowercase().contains("pass") => {
                shown.push(format!("{name}={MASK}"));
                break;
            }
            _ => shown.push(pair.to_owned()),
        }
    }
    shown.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_of_urls() {
        let cases = [
            ("postgres://u:secret@h:5432/db?x=1", "postgres://u:***@h:5432/db?x=1", "the user's"),
            ("postgres://u:sec/ret@h/db", "postgres://u:***@h/db", "unescaped slash in it"),
            ("postgres://u:sec@ret@h/db", "postgres://u:***@h/db", "unescaped @ in it"),
            ("postgres://u:s?ecret@h/db", "postgres://u:***", "unescaped ? in it"),
            ("postgres://u:s:ecret@h/db", "postgres://u:***@h/db", "a colon in it"),
            ("postgres://h/db?a=b&password=secret", "postgres://h/db?a=b&password=***", "in the query"),
            ("postgres://h/db?password=sec&ret", "postgres://h/db?password=***", "unescaped & in it"),
            ("postgres://h/db?sslpassword=secret", "postgres://h/db?sslpassword=***", "of the key"),
            ("postgres://u@h/db", "postgres://u@h/db", "none"),
            ("u:secret@h", "u:***@h", "the scheme forgotten"),
            ("amqp://u:secret", "amqp://u:***", "the host forgotten"),
            ("amqp://u:secret/v?queue=q", "amqp://u:***?queue=q", "the host forgotten"),
            ("kafka://h1:9092,[::1]:9092/t", "kafka://h1:9092,[::1]:9092/t", "ports"),
            ("embedded:./claims", "embedded:./claims", "a path"),
        ];
        for (text, right, why) in cases {
            assert_eq!(url(text), right, "{why}");
        }
        assert_eq!(format!("{:?}", Secret("secret".into())), MASK);
    }
}
