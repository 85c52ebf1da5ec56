//! Spans of time, as people read and write them.

use std::time::Duration;

/// `90s`, `10m`, `2h`, `7d`; a bare number is seconds.
///
/// # Errors
/// Another text, in words for the person who typed it.
pub fn parse(text: &str) -> Result<Duration, String> {
    lattice_api::span::parse(text).ok_or_else(|| format!("`{text}` is not a span of time: expected 90s, 10m, 2h or 7d"))
}

/// The two largest units at most: `45 s`, `3 min`, `2 h 5 min`, `4 d 1 h`.
pub fn words(milliseconds: u64) -> String {
    let seconds = milliseconds / 1_000;
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {small_unit}"),
    };
    match seconds {
        0 if milliseconds > 0 => format!("{milliseconds} ms"),
        0..=119 => format!("{seconds} s"),
        120..=3_599 => format!("{} min", seconds / 60),
        3_600..=86_399 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_with_their_unit() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7_200), ("7d", 604_800)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "m", "1w", "-1s", "99999999999999999999s", "1 h"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn spans_are_told_in_two_units_at_most() {
        let rows = [(0, "0 s"), (80, "80 ms"), (119_000, "119 s"), (180_000, "3 min"), (7_500_000, "2 h 5 min")];
        for (milliseconds, text) in rows {
            assert_eq!(words(milliseconds), text);
        }
        assert_eq!(words(4 * 86_400_000 + 3_600_000), "4 d 1 h");
    }
}
