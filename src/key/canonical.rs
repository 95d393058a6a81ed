//! JSON in its one canonical form (RFC 8785), so that equal records are equal byte for byte.
//!
//! Names sorted by their UTF-16 code units, no white space, strings with the fewest escapes, numbers as ECMAScript
//! writes the nearest double. Where that form would not say what the text says, there is none: a name that is repeated
//! within an object, half of a surrogate pair, a number beyond the doubles, and a whole number whose digits a double
//! does not hold (2^53 + 1 would come out as another number; as a string it is kept).
//!
//! Cost: one scan, one copy, a sort of each object's members. Recursion is bounded by [`DEPTH_MAX`].

use std::fmt::Write;

/// Most arrays and objects within each other, as in serde_json.
pub const DEPTH_MAX: usize = 127;

/// Why a text has no canonical form. Says nothing of what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Uncanonical {
    #[error("it is not JSON")]
    NotJson,
    #[error("it is nested too deep")]
    Deep,
    #[error("a name is repeated in an object")]
    Repeated,
    #[error("a number does not fit a double")]
    Inexact,
}

/// The canonical form of one JSON text.
pub fn canonical(text: &[u8]) -> Result<Vec<u8>, Uncanonical> {
    let text = std::str::from_utf8(text).map_err(|_| Uncanonical::NotJson)?;
    let mut scan = Scan { text, at: 0, depth: 0 };
    let mut out = String::with_capacity(text.len());
    scan.value(&mut out)?;
    scan.blanks();
    if scan.at < text.len() { Err(Uncanonical::NotJson) } else { Ok(out.into_bytes()) }
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn takes(&mut self, byte: u8) -> bool {
        let takes = self.peek() == Some(byte);
        self.at += usize::from(takes);
        takes
    }

    fn needs(&mut self, byte: u8) -> Result<(), Uncanonical> {
        if self.takes(byte) { Ok(()) } else { Err(Uncanonical::NotJson) }
    }

    fn value(&mut self, out: &mut String) -> Result<(), Uncanonical> {
        self.blanks();
        match self.peek() {
            Some(b'{') => self.within(out, Scan::object),
            Some(b'[') => self.within(out, Scan::array),
            Some(b'"') => {
                let text = self.string()?;
                write_string(&text, out);
                Ok(())
            }
            Some(b'-' | b'0'..=b'9') => self.number(out),
            _ => {
                let word = ["null", "true", "false"].into_iter().find(|word| self.text[self.at..].starts_with(word));
                let word = word.ok_or(Uncanonical::NotJson)?;
                self.at += word.len();
                out.push_str(word);
                Ok(())
            }
        }
    }

    fn within(
        &mut self,
        out: &mut String,
        inside: fn(&mut Scan<'a>, &mut String) -> Result<(), Uncanonical>,
    ) -> Result<(), Uncanonical> {
        if self.depth == DEPTH_MAX {
            return Err(Uncanonical::Deep);
        }
        self.depth += 1;
        self.at += 1;
        inside(self, out)?;
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self, out: &mut String) -> Result<(), Uncanonical> {
        out.push('[');
        self.blanks();
        if !self.takes(b']') {
            loop {
                self.value(out)?;
                self.blanks();
                if self.takes(b']') {
                    break;
                }
                self.needs(b',')?;
                out.push(',');
            }
        }
        out.push(']');
        Ok(())
    }

    fn object(&mut self, out: &mut String) -> Result<(), Uncanonical> {
        let mut members: Vec<(String, String)> = Vec::new();
        self.blanks();
        if !self.takes(b'}') {
            loop {
                self.blanks();
                let name = self.string()?;
                self.blanks();
                self.needs(b':')?;
                let mut value = String::new();
                self.value(&mut value)?;
                members.push((name, value));
                self.blanks();
                if self.takes(b'}') {
                    break;
                }
                self.needs(b',')?;
            }
        }
        members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        if members.windows(2).any(|two| two[0].0 == two[1].0) {
            return Err(Uncanonical::Repeated);
        }
        out.push('{');
        for (n, (name, value)) in members.iter().enumerate() {
            if n > 0 {
                out.push(',');
            }
            write_string(name, out);
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        Ok(())
    }

    /// Decoded.
    fn string(&mut self) -> Result<String, Uncanonical> {
        self.needs(b'"')?;
        let mut decoded = String::new();
        loop {
            let rest = &self.text[self.at..];
            let end = rest.find(|char: char| char == '"' || char == '\\' || char < ' ').ok_or(Uncanonical::NotJson)?;
            decoded.push_str(&rest[..end]);
            self.at += end;
            if self.takes(b'"') {
                return Ok(decoded);
            }
            self.needs(b'\\')?;
            decoded.push(self.escaped()?);
        }
    }

    fn escaped(&mut self) -> Result<char, Uncanonical> {
        let byte = self.peek().ok_or(Uncanonical::NotJson)?;
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.unit()?;
                let mut units = vec![unit];
                if (0xd800..0xdc00).contains(&unit) {
                    self.needs(b'\\')?;
                    self.needs(b'u')?;
                    units.push(self.unit()?);
                }
                let decoded = String::from_utf16(&units).map_err(|_| Uncanonical::NotJson)?;
                decoded.chars().next().ok_or(Uncanonical::NotJson)?
            }
            _ => return Err(Uncanonical::NotJson),
        })
    }

    fn unit(&mut self) -> Result<u16, Uncanonical> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).ok_or(Uncanonical::NotJson)?;
        let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        self.at += 4;
        u16::from_str_radix(digits.ok_or(Uncanonical::NotJson)?, 16).map_err(|_| Uncanonical::NotJson)
    }

    fn digits(&mut self) -> Result<(), Uncanonical> {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at > from { Ok(()) } else { Err(Uncanonical::NotJson) }
    }

    fn number(&mut self, out: &mut String) -> Result<(), Uncanonical> {
        let from = self.at;
        self.takes(b'-');
        if !self.takes(b'0') {
            self.digits()?;
        }
        let mut whole = true;
        if self.takes(b'.') {
            whole = false;
            self.digits()?;
        }
        if self.takes(b'e') || self.takes(b'E') {
            whole = false;
            let _ = self.takes(b'+') || self.takes(b'-');
            self.digits()?;
        }
        let text = &self.text[from..self.at];
        let number: f64 = text.parse().map_err(|_| Uncanonical::NotJson)?;
        // A double is written out in full by this format, digit by digit.
        let same = || format!("{number:.0}").trim_start_matches('-') == text.trim_start_matches('-');
        if !number.is_finite() || (whole && number.abs() >= 9_007_199_254_740_992.0 && !same()) {
            return Err(Uncanonical::Inexact);
        }
        write_number(number, out);
        Ok(())
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            char if char < ' ' => drop(write!(out, "\\u{:04x}", u32::from(char))),
            char => out.push(char),
        }
    }
    out.push('"');
}

/// As ECMAScript's `Number.prototype.toString` does: the fewest digits that read back as the same double, with an
/// exponent outside of 1e-7 < |n| < 1e21.
fn write_number(number: f64, out: &mut String) {
    if number == 0.0 {
        out.push('0');
        return;
    }
    if number < 0.0 {
        out.push('-');
    }
    let (digits, exponent) = shortest(number.abs());
    // Where the point stands, counted from the left of the digits.
    let (count, point) = (digits.len() as i32, exponent + 1);
    match point {
        _ if count <= point && point <= 21 => {
            out.push_str(&digits);
            (count..point).for_each(|_| out.push('0'));
        }
        1..=21 => {
            out.push_str(&digits[..point as usize]);
            out.push('.');
            out.push_str(&digits[point as usize..]);
        }
        -5..=0 => {
            out.push_str("0.");
            (point..0).for_each(|_| out.push('0'));
            out.push_str(&digits);
        }
        _ => {
            out.push_str(&digits[..1]);
            if count > 1 {
                out.push('.');
                out.push_str(&digits[1..]);
            }
            let sign = if exponent < 0 { '-' } else { '+' };
            let _ = write!(out, "e{sign}{}", exponent.abs());
        }
    }
}

/// Digits without a point, and the exponent of the first.
fn shortest(number: f64) -> (String, i32) {
    let apart = |text: &str| {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        (mantissa.replace('.', ""), exponent.parse().unwrap_or_default())
    };
    let (digits, exponent) = apart(&format!("{number:e}"));
    // Two decimals of up to 15 digits are never one double. Of two that are, and are equally near, the even one counts.
    if digits.len() > 15 {
        let (exact, _) = apart(&format!("{number:.800e}"));
        let (below, rest) = exact.split_at(digits.len());
        let is_between = rest.strip_prefix('5').is_some_and(|rest| rest.bytes().all(|digit| digit == b'0'));
        let reads_back = || format!("{}.{}e{exponent}", &below[..1], &below[1..]).parse() == Ok(number);
        let is_even = below.bytes().last().is_some_and(|digit| digit % 2 == 0);
        if is_between && is_even && reads_back() {
            return (below.trim_end_matches('0').to_owned(), exponent);
        }
    }
    (digits, exponent)
}

#[cfg(test)]
#[path = "canonical_tests.rs"]
mod tests;
