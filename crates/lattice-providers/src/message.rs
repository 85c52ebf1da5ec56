//! Words of others made safe to keep: bounded, one line, without markup and without known secrets.

/// Longest text of a provider that is kept, in characters: enough for a sentence and its cause.
pub const LONGEST: usize = 400;

/// Shortest secret that is searched for: replacing shorter ones would shred ordinary words.
const SHORTEST_SECRET: usize = 4;

/// One line of at most [`LONGEST`] characters without control characters.
pub fn bounded(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(LONGEST));
    let mut kept = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        let length = word.chars().count();
        if kept + length >= LONGEST {
            line.extend(word.chars().take(LONGEST - kept - 1));
            line.push('…');
            return line;
        }
        if kept > 0 {
            line.push(' ');
            kept += 1;
        }
        line.push_str(word);
        kept += length;
    }
    line
}

/// The words of an answer's body: without HTML markup, without `secrets`, bounded.
pub fn of_body(body: &[u8], secrets: &[&str]) -> String {
    // A body is cut before anything else looks at it; four times the bound leaves room for markup and UTF-8.
    let head = String::from_utf8_lossy(&body[..body.len().min(16 * LONGEST)]);
    let text = if head.trim_start().starts_with('<') { without_markup(&head) } else { head.into_owned() };
    bounded(&without_secrets(text, secrets))
}

/// Replaces every occurrence of a secret.
pub fn without_secrets(mut text: String, secrets: &[&str]) -> String {
    for secret in secrets.iter().filter(|secret| secret.len() >= SHORTEST_SECRET) {
        if text.contains(secret) {
            text = text.replace(secret, "***");
        }
    }
    text
}

fn without_markup(html: &str) -> String {
    let mut text = String::with_capacity(html.len());
    let mut inside_tag = false;
    for c in html.chars() {
        match (inside_tag, c) {
            (false, '<') => inside_tag = true,
            (true, '>') => {
                inside_tag = false;
                text.push(' ');
            }
            (false, other) => text.push(other),
            (true, _) => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_becomes_one_bounded_line() {
        assert_eq!(bounded("  a\r\n\tb\u{1b}[31mc  "), "a b [31mc");
        let long = bounded(&"word ".repeat(1_000));
        assert!(long.chars().count() <= LONGEST, "{}", long.chars().count());
        assert!(long.ends_with('…'), "{long}");
        assert!(bounded(&"é".repeat(5_000)).chars().count() <= LONGEST);
    }

    #[test]
    fn markup_and_secrets_do_not_survive() {
        let html = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>";
        assert_eq!(of_body(html, &[]), "502 Bad Gateway nginx");
        assert_eq!(of_body(b"bad value hunter22 given", &["hunter22", ""]), "bad value *** given");
    }

    #[test]
    fn a_body_that_is_not_text_does_not_break_anything() {
        assert!(!of_body(&[0xff, 0xfe, 0, 1, 2], &[]).contains('\u{1}'));
        assert_eq!(of_body(b"", &[]), "");
    }
}
