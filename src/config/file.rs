//! The configuration file: the names of the environment, one `NAME=VALUE` a line.
//!
//! Blank lines and lines that begin with `#` are skipped. A value goes to the end of its line; white space around it
//! and one pair of quotes, single or double, are dropped. There are no escapes and no comments behind a value, since
//! passwords hold anything.

/// A line that says something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// Counted from 1.
    pub number: usize,
    pub name: &'a str,
    pub value: &'a str,
}

/// The lines, and the numbers of those that cannot be read, each with its problem (never its value).
pub fn parse(text: &str) -> (Vec<Line<'_>>, Vec<(usize, &'static str)>) {
    let (mut lines, mut bad) = (Vec::new(), Vec::new());
    for (n, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let (number, line) = (n + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => {
                lines.push(Line { number, name: name.trim(), value: unquoted(value.trim()) });
            }
            _ => bad.push((number, "a line is NAME=VALUE")),
        }
    }
    (lines, bad)
}

fn unquoted(value: &str) -> &str {
    ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote)).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_file() {
        type Case = (&'static str, Option<(&'static str, &'static str)>, &'static str);
        let cases: &[Case] = &[
            ("A=b", Some(("A", "b")), "a pair"),
            (" A = b c ", Some(("A", "b c")), "white space around"),
            ("A=b=c#d", Some(("A", "b=c#d")), "to the end of the line"),
            ("A=\" b \"", Some(("A", " b ")), "quotes keep white space"),
            ("A='b'", Some(("A", "b")), "of either kind"),
            ("A=\"b'", Some(("A", "\"b'")), "but a pair"),
            ("A=\"", Some(("A", "\"")), "one quote alone"),
            ("A=", Some(("A", "")), "nothing"),
            ("\u{feff}A=b\r", Some(("A", "b")), "as some editors write it"),
            ("# A=b", None, "a comment"),
            ("", None, "a blank line"),
        ];
        for (text, right, why) in cases {
            let (lines, bad) = parse(text);
            assert_eq!(lines.first().map(|line| (line.name, line.value)), *right, "{why}");
            assert_eq!(bad, [], "{why}");
        }
        assert_eq!(parse("\nA b\n=c").1, [(2, "a line is NAME=VALUE"), (3, "a line is NAME=VALUE")]);
    }
}
