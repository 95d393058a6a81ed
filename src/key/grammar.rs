//! What the recipes' texts have in common: splitting, escapes, and errors that point at the place.

/// Separators and `\` stand for themselves behind a `\`.
const ESCAPE: char = '\\';

/// A recipe that cannot be read, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`, column {column}: {problem}")]
pub struct BadRecipe {
    pub text: String,
    /// Counted in characters from 1.
    pub column: usize,
    pub problem: String,
}

/// A piece of a text, and where it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    whole: &'a str,
    at: usize,
    pub text: &'a str,
}

impl<'a> Piece<'a> {
    pub fn whole(text: &'a str) -> Piece<'a> {
        Piece { whole: text, at: 0, text }.trimmed()
    }

    fn part(&self, from: usize, to: usize) -> Piece<'a> {
        Piece { at: self.at + from, text: &self.text[from..to], ..*self }
    }

    fn trimmed(self) -> Piece<'a> {
        let from = self.text.len() - self.text.trim_start().len();
        self.part(from, from + self.text.trim().len())
    }

    /// Splits at every separator that is not escaped; white space around the pieces is dropped.
    pub fn split(&self, separator: char) -> Vec<Piece<'a>> {
        let (mut pieces, mut from, mut escaped) = (Vec::new(), 0, false);
        for (at, char) in self.text.char_indices() {
            if !escaped && char == separator {
                pieces.push(self.part(from, at).trimmed());
                from = at + char.len_utf8();
            }
            escaped = !escaped && char == ESCAPE;
        }
        pieces.push(self.part(from, self.text.len()).trimmed());
        pieces
    }

    /// What stands before and behind the first `:`.
    pub fn named(&self) -> (&'a str, Option<Piece<'a>>) {
        match self.text.find(':') {
            Some(at) => (&self.text[..at], Some(self.part(at + 1, self.text.len()))),
            None => (self.text, None),
        }
    }

    /// The piece in front of the last `:`, unless that is escaped, and what follows it.
    pub fn suffixed(&self) -> Option<(Piece<'a>, &'a str)> {
        let at = self.text.rfind(':')?;
        let escapes = self.text[..at].chars().rev().take_while(|&char| char == ESCAPE).count();
        (escapes % 2 == 0).then(|| (self.part(0, at), &self.text[at + 1..]))
    }

    /// The text with its escapes resolved.
    pub fn unescaped(&self) -> Result<String, BadRecipe> {
        let mut plain = String::with_capacity(self.text.len());
        let mut chars = self.text.char_indices();
        while let Some((at, char)) = chars.next() {
            plain.push(match (char, chars.clone().next()) {
                (ESCAPE, Some((_, next @ ('|' | '+' | ':' | ESCAPE)))) => {
                    chars.next();
                    next
                }
                (ESCAPE, _) => {
                    let place = self.part(at, at + 1);
                    return Err(place.bad(r"`\` is followed by `|`, `+`, `:` or `\`"));
                }
                (other, _) => other,
            });
        }
        Ok(plain)
    }

    pub fn bad(&self, problem: impl Into<String>) -> BadRecipe {
        let column = self.whole[..self.at].chars().count() + 1;
        BadRecipe { text: self.whole.into(), column, problem: problem.into() }
    }
}

/// The opposite of [`Piece::unescaped`].
pub(super) fn escaped(plain: &str) -> String {
    let mut text = String::with_capacity(plain.len());
    for char in plain.chars() {
        if matches!(char, '|' | '+' | ':' | ESCAPE) {
            text.push(ESCAPE);
        }
        text.push(char);
    }
    text
}
