//! The key of a claim within its week: the scope's number and the event id, packed.
//!
//! An id that is a UUID or hexadecimal, as most are, takes half its length or less. Packing is injective: the
//! tests unpack.

use super::code::Out;
#[cfg(test)]
use super::code::{In, Unreadable};
use crate::protocol::event::EventId;

const TEXT: u8 = 0;
/// `~x` and hexadecimal: an id of arbitrary bytes.
const ESCAPED_HEX: u8 = 1;
/// `~h` and hexadecimal: the digest of a long id.
const ESCAPED_DIGEST: u8 = 2;
/// Lower case, with its hyphens.
const UUID: u8 = 3;
/// Lower case, an even number of digits, which takes in plain numbers.
const HEX: u8 = 4;

const UUID_LENGTH: usize = 36;
const UUID_HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// Writes the key into `out`, whose former content is dropped.
pub(super) fn write(out: &mut Out, scope: u32, id: &EventId) {
    out.0.clear();
    out.number(u64::from(scope));
    pack(&mut out.0, id.as_str());
}

#[cfg(test)]
fn read(key: &[u8]) -> Result<(u32, EventId), Unreadable> {
    let mut read = In(key);
    let scope = read.small()?;
    Ok((scope, EventId::from_stored(unpack(read.0)?)))
}

fn pack(out: &mut Vec<u8>, id: &str) {
    let (tag, digits) = match id.as_bytes() {
        [b'~', b'x', digits @ ..] => (ESCAPED_HEX, digits),
        [b'~', b'h', digits @ ..] => (ESCAPED_DIGEST, digits),
        digits => (HEX, digits),
    };
    let begin = out.len();
    out.push(tag);
    if push_hex(out, digits) {
        return;
    }
    out.truncate(begin);
    out.push(UUID);
    if push_uuid(out, id.as_bytes()) {
        return;
    }
    out.truncate(begin);
    out.push(TEXT);
    out.extend_from_slice(id.as_bytes());
}

/// Whether all of `digits` are lower-case hexadecimal in pairs; then their bytes were appended.
fn push_hex(out: &mut Vec<u8>, digits: &[u8]) -> bool {
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return false;
    }
    for pair in digits.chunks_exact(2) {
        let (high, low) = (DIGIT[usize::from(pair[0])], DIGIT[usize::from(pair[1])]);
        if high > 15 || low > 15 {
            return false;
        }
        out.push(high << 4 | low);
    }
    true
}

fn push_uuid(out: &mut Vec<u8>, id: &[u8]) -> bool {
    if id.len() != UUID_LENGTH || UUID_HYPHENS.iter().any(|&at| id[at] != b'-') {
        return false;
    }
    [&id[0..8], &id[9..13], &id[14..18], &id[19..23], &id[24..36]].iter().all(|group| push_hex(out, group))
}

#[cfg(test)]
fn unpack(packed: &[u8]) -> Result<String, Unreadable> {
    let (&tag, rest) = packed.split_first().ok_or(Unreadable("it ends early"))?;
    match tag {
        TEXT => String::from_utf8(rest.to_vec()).map_err(|_| Unreadable("an event id is not UTF-8")),
        ESCAPED_HEX => Ok(format!("~x{}", hex::encode(rest))),
        ESCAPED_DIGEST => Ok(format!("~h{}", hex::encode(rest))),
        HEX => Ok(hex::encode(rest)),
        UUID if rest.len() == 16 => {
            let mut text = hex::encode(rest);
            UUID_HYPHENS.iter().for_each(|&at| text.insert(at, '-'));
            Ok(text)
        }
        _ => Err(Unreadable("the form of an event id is not known")),
    }
}

/// The value of a lower-case hexadecimal digit, 255 for every other byte.
const DIGIT: [u8; 256] = {
    let mut table = [255; 256];
    let mut value = 0;
    while value < 16 {
        table[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(id: &str) -> Vec<u8> {
        let mut out = Out::default();
        write(&mut out, 1, &EventId::from_stored(id));
        out.0
    }

    #[test]
    fn ids_come_back_and_stay_apart() {
        let ids = [
            ("order-17", "text stands for itself"),
            ("a", "one letter that is half a byte of hexadecimal"),
            ("ab", "hexadecimal"),
            ("AB", "upper case is another id and not packed"),
            ("aB", "mixed case too"),
            ("12345678", "a plain number is hexadecimal too"),
            ("012", "a leading zero and an odd length"),
            ("0012", "a leading zero"),
            ("~x00ff", "arbitrary bytes"),
            ("~x", "an escape without digits, as no encoder makes it"),
            ("~h00ff", "a digest's form is not that of bytes"),
            ("00ff", "nor is plain text that looks like it"),
            ("0199f2d4-77aa-7bbb-8ccc-0123456789ab", "a UUID"),
            ("0199F2D4-77AA-7BBB-8CCC-0123456789AB", "a UUID in upper case"),
            ("0199f2d477aa7bbb8ccc0123456789ab", "a UUID without hyphens"),
            ("0199f2d4-77aa-7bbb-8ccc-0123456789ag", "nearly a UUID"),
            ("0199f2d47-7aa-7bbb-8ccc-0123456789ab", "a hyphen elsewhere"),
            ("é", "not ASCII"),
        ];
        let mut seen = std::collections::HashMap::new();
        for (id, why) in ids {
            let key = packed(id);
            assert_eq!(read(&key), Ok((1, EventId::from_stored(id))), "{id}: {why}");
            assert_eq!(seen.insert(key, id), None, "{id}: {why}");
        }
    }

    #[test]
    fn a_uuid_and_a_digest_are_short() {
        assert_eq!(packed("0199f2d4-77aa-7bbb-8ccc-0123456789ab").len(), 18);
        assert_eq!(packed(&format!("~x{}", "ab".repeat(32))).len(), 34);
    }
}
