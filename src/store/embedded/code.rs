//! Bytes as the embedded store keeps them: numbers as variable-length integers, texts with their length in front.

/// What a folder holds is not what this version writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record of the claim store cannot be read: {0}")]
pub(super) struct Unreadable(pub &'static str);

/// Appends to a record.
#[derive(Debug, Default)]
pub(super) struct Out(pub Vec<u8>);

impl Out {
    pub fn byte(&mut self, byte: u8) -> &mut Out {
        self.0.push(byte);
        self
    }

    /// Seven bits a byte, the lowest first.
    pub fn number(&mut self, mut number: u64) -> &mut Out {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
        self
    }

    /// Zigzag, so that small negative numbers are short too.
    pub fn signed(&mut self, number: i64) -> &mut Out {
        self.number(((number << 1) ^ (number >> 63)) as u64)
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Out {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn maybe<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Out, T)) -> &mut Out {
        match value {
            None => self.byte(0),
            Some(value) => {
                self.byte(1);
                write(self, value);
                self
            }
        }
    }
}

/// Reads a record from its front.
#[derive(Debug)]
pub(super) struct In<'a>(pub &'a [u8]);

impl<'a> In<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> Result<u8, Unreadable> {
        let (&byte, rest) = self.0.split_first().ok_or(Unreadable("it ends early"))?;
        self.0 = rest;
        Ok(byte)
    }

    /// Refuses every format but the one that is asked for.
    pub fn format(&mut self, format: u8) -> Result<(), Unreadable> {
        if self.byte()? == format { Ok(()) } else { Err(Unreadable("its format is not known")) }
    }

    pub fn number(&mut self) -> Result<u64, Unreadable> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Unreadable("a number is too long"))
    }

    pub fn signed(&mut self) -> Result<i64, Unreadable> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub fn small(&mut self) -> Result<u32, Unreadable> {
        u32::try_from(self.number()?).map_err(|_| Unreadable("a number is too large"))
    }

    pub fn small_signed(&mut self) -> Result<i32, Unreadable> {
        i32::try_from(self.signed()?).map_err(|_| Unreadable("a number is too large"))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Unreadable> {
        let length = usize::try_from(self.number()?).map_err(|_| Unreadable("a length is too large"))?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Unreadable("it ends early"))?;
        self.0 = rest;
        Ok(bytes)
    }

    pub fn text(&mut self) -> Result<&'a str, Unreadable> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Unreadable("a text is not UTF-8"))
    }

    pub fn maybe<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Unreadable>) -> Result<Option<T>, Unreadable> {
        match self.byte()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err(Unreadable("a mark is neither 0 nor 1")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN, 1_764_547_200_000_000] {
            let mut out = Out::default();
            out.signed(number).number(number as u64);
            let mut read = In(&out.0);
            assert_eq!((read.signed(), read.number()), (Ok(number), Ok(number as u64)));
            assert!(read.is_empty());
        }
    }

    #[test]
    fn a_torn_record_is_an_error_and_not_a_panic() {
        let mut out = Out::default();
        out.byte(7).bytes(b"abcdef").maybe(Some(-3), |out, number| {
            out.signed(number);
        });
        let read = |bytes: &[u8]| -> Result<Option<i64>, Unreadable> {
            let mut read = In(bytes);
            read.format(7)?;
            read.text()?;
            read.maybe(In::signed)
        };
        assert_eq!(read(&out.0), Ok(Some(-3)));
        for end in 0..out.0.len() {
            assert!(read(&out.0[..end]).is_err(), "cut at {end}");
        }
    }
}
