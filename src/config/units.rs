//! Values with units.

use std::time::Duration;

/// A whole number and its unit: `250ms`, `5s`, `2m`, `12h`, `7d`. A bare number is refused: of what?
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("`{text}` is not a whole number with its unit (ms, s, m, h, d)")),
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is not a whole number with its unit"))?;
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(|| format!("`{text}` is too long"))
}

/// A whole number and its unit: `512KiB`, `8MiB`; without one, bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let scale = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(format!("`{text}` is not a whole number with its unit (B, KiB, MiB, GiB)")),
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is not a whole number of bytes"))?;
    number.checked_mul(scale).ok_or_else(|| format!("`{text}` is too many"))
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// As [`duration`] reads it.
pub fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)]
        .iter()
        .find(|(_, scale)| millis > 0 && millis.is_multiple_of(*scale))
        .map_or_else(|| format!("{millis}ms"), |(unit, scale)| format!("{}{unit}", millis / scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases = [
            ("250ms", Some(250), "milliseconds"),
            ("0s", Some(0), "nothing"),
            ("2m", Some(120_000), "minutes"),
            ("12h", Some(43_200_000), "hours"),
            ("7d", Some(604_800_000), "days"),
            ("5", None, "of what?"),
            ("s", None, "how many?"),
            ("1.5s", None, "whole numbers only"),
            ("-1s", None, "no time is negative"),
            ("5 s", None, "no space"),
            ("5S", None, "no unit"),
            ("99999999999999999d", None, "past 64 bits"),
        ];
        for (text, millis, why) in cases {
            assert_eq!(duration(text).ok().map(|found| found.as_millis()), millis, "{text}: {why}");
        }
    }

    #[test]
    fn sizes() {
        let cases = [
            ("512", Some(512), "bytes"),
            ("512B", Some(512), "bytes by name"),
            ("8MiB", Some(8 << 20), "binary units"),
            ("1GiB", Some(1 << 30), "binary units"),
            ("8MB", None, "which of the two megabytes?"),
            ("MiB", None, "how many?"),
            ("99999999999GiB", None, "past 64 bits"),
        ];
        for (text, size, why) in cases {
            assert_eq!(bytes(text).ok(), size, "{text}: {why}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_duration_is_what_it_is_shown_as(millis in 0..10_000_000_000_u64) {
            let right = Duration::from_millis(millis);
            proptest::prop_assert_eq!(duration(&show_duration(right)), Ok(right));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,12}", near in "[0-9]{0,24}[a-zA-Zé]{0,3}") {
            let _ = (duration(&text), duration(&near), bytes(&text), bytes(&near));
        }
    }
}
