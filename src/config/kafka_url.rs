//! `kafka://h1:9092,h2:9092/topic1,topic2?group=g`: brokers, topics and a few parameters.

use percent_encoding::percent_decode_str;

/// Longest name of a topic that Kafka takes.
const TOPIC_BYTES_MAX: usize = 249;
const DEFAULT_PORT: u16 = 9092;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaUrl {
    /// `host:port` each; may be empty.
    pub brokers: Vec<String>,
    /// At least one, each once.
    pub topics: Vec<String>,
    parameters: Vec<(String, String)>,
}

impl KafkaUrl {
    /// `known`: the parameters that mean something.
    pub fn parse(text: &str, known: &[&str]) -> Result<KafkaUrl, String> {
        let rest = text.strip_prefix("kafka://").ok_or("it must begin with kafka://")?;
        let (front, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = front.split_once('/').unwrap_or((front, ""));
        if authority.contains('@') {
            return Err("it holds no credentials: see SEMEL_KAFKA_SASL_USERNAME and SEMEL_KAFKA_SASL_PASSWORD".into());
        }
        let brokers = match authority {
            "" => Vec::new(),
            _ => authority.split(',').map(|text| address(text, DEFAULT_PORT)).collect::<Result<_, _>>()?,
        };
        let mut topics = Vec::new();
        for topic in path.split(',') {
            check_topic(topic)?;
            if topics.iter().any(|there| there == topic) {
                return Err(format!("the topic {topic} is named twice"));
            }
            topics.push(topic.to_owned());
        }
        Ok(KafkaUrl { brokers, topics, parameters: parameters(query, known)? })
    }

    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What stands behind the `?`. Its errors name parameters, never their values.
pub(super) fn parameters(query: &str, known: &[&str]) -> Result<Vec<(String, String)>, String> {
    let mut parameters: Vec<(String, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !known.contains(&name) {
            return Err(format!("it takes {} and not `{name}`", known.join(", ")));
        }
        if parameters.iter().any(|(there, _)| there == name) {
            return Err(format!("`{name}` is given twice"));
        }
        let value = percent_decode_str(value).decode_utf8().map_err(|_| format!("`{name}` is not UTF-8"))?;
        if value.trim().is_empty() {
            return Err(format!("`{name}` is blank"));
        }
        parameters.push((name.into(), value.into_owned()));
    }
    Ok(parameters)
}

/// HOST or HOST:PORT as `host:port`.
pub(super) fn address(text: &str, default_port: u16) -> Result<String, String> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => (&text[..address.len() + 2], port),
        Some(_) => return Err(format!("`{text}` is not an IPv6 address in brackets")),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let sound = !host.is_empty() && host.chars().all(|char| char.is_ascii_graphic());
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => Some(default_port),
        None => None,
        Some(digits) => digits.parse().ok().filter(|port| *port > 0),
    };
    match port {
        Some(port) if sound => Ok(format!("{host}:{port}")),
        _ => Err(format!("`{text}` is not HOST or HOST:PORT")),
    }
}

/// What Kafka takes as a name, its own internal topics excepted.
pub fn check_topic(name: &str) -> Result<(), String> {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match name {
        "" => Err("a topic is missing".into()),
        "." | ".." => Err(format!("`{name}` is no name for a topic")),
        _ if name.len() > TOPIC_BYTES_MAX => Err(format!("a topic's name has at most {TOPIC_BYTES_MAX} characters")),
        _ if !name.bytes().all(sound) => {
            Err(format!("`{name}` is no name for a topic (letters, digits, `.`, `_`, `-`)"))
        }
        _ if name.starts_with("__") => Err(format!("`{name}` is one of Kafka's own topics")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let cases: &[(&str, &[&str], &[&str], &str)] = &[
            ("kafka://h:1/t", &["h:1"], &["t"], "one of each"),
            ("kafka://h1:1,h2/t1,t2?group=g", &["h1:1", "h2:9092"], &["t1", "t2"], "several, and Kafka's usual port"),
            ("kafka://[::1]:1,[::2]/t", &["[::1]:1", "[::2]:9092"], &["t"], "IPv6"),
            ("kafka:///t", &[], &["t"], "no brokers: the source's"),
        ];
        for (text, brokers, topics, why) in cases {
            let url = KafkaUrl::parse(text, &["group"]).expect(why);
            assert_eq!((url.brokers, url.topics), (strings(brokers), strings(topics)), "{text}: {why}");
        }
        let url = KafkaUrl::parse("kafka://h/t?group=a%20b%26c", &["group"]).expect("a URL");
        assert_eq!(url.parameter("group"), Some("a b&c"), "a group may have any name");
    }

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).into()).collect()
    }

    #[test]
    fn texts_that_are_no_url() {
        let long = format!("kafka://h/{}", "t".repeat(TOPIC_BYTES_MAX + 1));
        let cases = [
            ("http://h/t", "it must begin with kafka://"),
            ("kafka://h", "a topic is missing"),
            ("kafka://h/", "a topic is missing"),
            ("kafka://h/a,,b", "a topic is missing"),
            ("kafka://h/a,a", "the topic a is named twice"),
            ("kafka://h/a b", "`a b` is no name for a topic (letters, digits, `.`, `_`, `-`)"),
            ("kafka://h/..", "`..` is no name for a topic"),
            ("kafka://h/__consumer_offsets", "`__consumer_offsets` is one of Kafka's own topics"),
            (&long, "a topic's name has at most 249 characters"),
            ("kafka://h:x/t", "`h:x` is not HOST or HOST:PORT"),
            ("kafka://h:0/t", "`h:0` is not HOST or HOST:PORT"),
            ("kafka://h:70000/t", "`h:70000` is not HOST or HOST:PORT"),
            ("kafka://,h/t", "`` is not HOST or HOST:PORT"),
            ("kafka://[x]:1/t", "`[x]:1` is not an IPv6 address in brackets"),
            ("kafka://[::1]1/t", "`[::1]1` is not HOST or HOST:PORT"),
            ("kafka://h/t?grp=g", "it takes group and not `grp`"),
            ("kafka://h/t?group=a&group=b", "`group` is given twice"),
            ("kafka://h/t?group=", "`group` is blank"),
            ("kafka://h/t?group=%FF", "`group` is not UTF-8"),
            (
                "kafka://u:secret@h/t",
                "it holds no credentials: see SEMEL_KAFKA_SASL_USERNAME and SEMEL_KAFKA_SASL_PASSWORD",
            ),
        ];
        for (text, problem) in cases {
            assert_eq!(KafkaUrl::parse(text, &["group"]), Err(problem.into()), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,40}", near in "kafka://[a-z0-9\\[\\]:,/?&=%@é]{0,30}") {
            let _ = (KafkaUrl::parse(&text, &["group"]), KafkaUrl::parse(&near, &["group"]));
        }
    }
}
