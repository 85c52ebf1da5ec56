//! Rust source seen as text: code without its comments and literals, comments without code, functions, match arms.
//!
//! A small scanner instead of a parser: the checks ask shallow questions, and a parser would be compiled by everybody
//! who only wants to run them.

/// One source file, split into what the compiler reads and what people read. Both keep every line where it was.
pub struct RustText {
    /// Code; the contents of comments, strings and character literals are blanks.
    pub code: String,
    /// Comments; everything else is blanks.
    pub comments: String,
}

impl RustText {
    /// Splits a source text.
    pub fn new(text: &str) -> Self {
        let mut scanner = Scanner::new(text);
        while scanner.at < scanner.chars.len() {
            scanner.step();
        }
        Self { code: scanner.code, comments: scanner.comments }
    }

    /// The code with every `#[cfg(test)]` item blanked out.
    pub fn production_code(&self) -> String {
        let mut code: Vec<char> = self.code.chars().collect();
        let marker: Vec<char> = "#[cfg(test)]".chars().collect();
        let mut at = 0;
        while at + marker.len() <= code.len() {
            if code[at..at + marker.len()] != marker[..] {
                at += 1;
                continue;
            }
            let end = end_of_item(&code, at + marker.len());
            for letter in &mut code[at..end] {
                if *letter != '\n' {
                    *letter = ' ';
                }
            }
            at = end;
        }
        code.into_iter().collect()
    }
}

/// Where the item that begins at `from` ends: after its `;`, or after the brace that closes its body.
fn end_of_item(code: &[char], from: usize) -> usize {
    let mut depth = 0_i32;
    for (index, letter) in code.iter().enumerate().skip(from) {
        match letter {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return index + 1;
                }
            }
            ';' if depth == 0 => return index + 1,
            _ => {}
        }
    }
    code.len()
}

struct Scanner {
    chars: Vec<char>,
    at: usize,
    code: String,
    comments: String,
}

impl Scanner {
    fn new(text: &str) -> Self {
        Self { chars: text.chars().collect(), at: 0, code: String::new(), comments: String::new() }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn starts(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(ahead, letter)| self.peek(ahead) == Some(letter))
    }

    /// Moves over one character, which lands in the code, in the comments or in neither.
    fn take(&mut self, target: Target) {
        let Some(letter) = self.peek(0) else { return };
        let blank = if letter == '\n' { '\n' } else { ' ' };
        self.code.push(if target == Target::Code { letter } else { blank });
        self.comments.push(if target == Target::Comment { letter } else { blank });
        self.at += 1;
    }

    fn step(&mut self) {
        if self.starts("//") {
            while self.peek(0).is_some_and(|letter| letter != '\n') {
                self.take(Target::Comment);
            }
        } else if self.starts("/*") {
            self.block_comment();
        } else if let Some(hashes) = self.raw_string_ahead() {
            self.raw_string(hashes);
        } else if self.peek(0) == Some('"') {
            self.quoted('"');
        } else if self.peek(0) == Some('\'') && self.char_literal_ahead() {
            self.quoted('\'');
        } else {
            self.take(Target::Code);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.chars.len() {
            if self.starts("/*") {
                depth += 1;
                self.take(Target::Comment);
            } else if self.starts("*/") {
                depth -= 1;
                self.take(Target::Comment);
            }
            self.take(Target::Comment);
            if depth == 0 {
                return;
            }
        }
    }

    /// How many `#` a raw string that begins here has.
    fn raw_string_ahead(&self) -> Option<usize> {
        let after_word = self.at > 0 && is_word(self.chars[self.at - 1]);
        if self.peek(0) != Some('r') || (after_word && self.chars[self.at - 1] != 'b') {
            return None;
        }
        let hashes = (1..).take_while(|ahead| self.peek(*ahead) == Some('#')).count();
        (self.peek(1 + hashes) == Some('"')).then_some(hashes)
    }

    fn raw_string(&mut self, hashes: usize) {
        for _ in 0..hashes + 2 {
            self.take(Target::Code);
        }
        let end = format!("\"{}", "#".repeat(hashes));
        while self.at < self.chars.len() && !self.starts(&end) {
            self.take(Target::Neither);
        }
        for _ in 0..=hashes {
            self.take(Target::Code);
        }
    }

    /// `'a'` and `'\n'` are literals, `'a` is a lifetime.
    fn char_literal_ahead(&self) -> bool {
        self.peek(1) == Some('\\') || self.peek(2) == Some('\'')
    }

    fn quoted(&mut self, end: char) {
        self.take(Target::Code);
        while let Some(letter) = self.peek(0) {
            if letter == '\\' {
                self.take(Target::Neither);
                self.take(Target::Neither);
            } else if letter == end {
                self.take(Target::Code);
                return;
            } else {
                self.take(Target::Neither);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Code,
    Comment,
    Neither,
}

/// Whether a character can be part of an identifier.
pub fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Where `word` stands on its own, as places in `code`.
pub fn words<'a>(code: &'a [char], word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let letters: Vec<char> = word.chars().collect();
    (0..code.len()).filter(move |at| {
        code[*at..].starts_with(&letters)
            && (*at == 0 || !is_word(code[at - 1]))
            && code.get(at + letters.len()).is_none_or(|letter| !is_word(*letter))
    })
}

/// Number of the line, from 1, in which the place lies.
pub fn line_of(code: &[char], at: usize) -> usize {
    1 + code[..at].iter().filter(|letter| **letter == '\n').count()
}

/// One function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of its `fn`, from 1.
    pub line: usize,
    /// Lines from its `fn` to its closing brace.
    pub lines: usize,
}

/// The functions with a body.
pub fn functions(code: &str) -> Vec<Function> {
    let code: Vec<char> = code.chars().collect();
    let mut found = Vec::new();
    for at in words(&code, "fn") {
        let name: String =
            code[at + 2..].iter().skip_while(|c| c.is_whitespace()).take_while(|c| is_word(**c)).collect();
        if name.is_empty() {
            continue;
        }
        if let Some(open) = body_after(&code, at) {
            let close = end_of_item(&code, open);
            let line = line_of(&code, at);
            found.push(Function { name, line, lines: line_of(&code, close - 1) - line + 1 });
        }
    }
    found
}

/// The `{` that opens the body of what begins at `from`; none when it ends with `;` before.
fn body_after(code: &[char], from: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (index, letter) in code.iter().enumerate().skip(from) {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return Some(index),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// One `match` with the patterns of its arms.
#[derive(Debug, PartialEq, Eq)]
pub struct Match {
    /// Each arm's pattern and its line.
    pub patterns: Vec<(String, usize)>,
}

/// Every `match`, the nested ones included.
pub fn matches(code: &str) -> Vec<Match> {
    let code: Vec<char> = code.chars().collect();
    let places: Vec<usize> = words(&code, "match").collect();
    places
        .into_iter()
        .filter_map(|at| body_after(&code, at))
        .map(|open| Match { patterns: patterns(&code, open + 1) })
        .collect()
}

fn patterns(code: &[char], from: usize) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut at = from;
    while let Some((pattern_end, body)) = arrow_after(code, at) {
        let text: String = code[at..pattern_end].iter().collect();
        let lead = text.chars().take_while(|letter| letter.is_whitespace()).count();
        found.push((text.trim().to_owned(), line_of(code, at + lead)));
        match end_of_arm(code, body) {
            Some(next) => at = next,
            None => break,
        }
    }
    found
}

/// The `=>` of the arm that begins at `from`: where it stands, and what follows it.
fn arrow_after(code: &[char], from: usize) -> Option<(usize, usize)> {
    let mut depth = 0_i32;
    for index in from..code.len() {
        match code[index] {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth -= 1;
                if depth < 0 {
                    return None;
                }
            }
            '=' if depth == 0 && code.get(index + 1) == Some(&'>') => return Some((index, index + 2)),
            _ => {}
        }
    }
    None
}

/// Where the next arm begins; none after the last one.
fn end_of_arm(code: &[char], body: usize) -> Option<usize> {
    let begin = (body..code.len()).find(|index| !code[*index].is_whitespace())?;
    if code[begin] == '{' {
        let close = end_of_item(code, begin);
        let comma = (close..code.len()).find(|index| !code[*index].is_whitespace());
        return match comma {
            Some(index) if code[index] == ',' => Some(index + 1),
            Some(_) | None => Some(close),
        };
    }
    let mut depth = 0_i32;
    for (index, letter) in code.iter().enumerate().skip(begin) {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth -= 1;
                if depth < 0 {
                    return None;
                }
            }
            ',' if depth == 0 => return Some(index + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_no_code() {
        let text = RustText::new("let a = \"// fn x\"; // TODO b\nlet c = 'x'; let d: &'static str = r#\"y\"z\"#;");
        assert_eq!(text.code.lines().next().unwrap().trim_end(), "let a = \"       \";");
        assert!(text.comments.contains("// TODO b") && !text.comments.contains("fn x"));
        assert!(text.code.ends_with("let c = ' '; let d: &'static str = r#\"   \"#;"), "{}", text.code);
    }

    #[test]
    fn test_modules_are_no_production_code() {
        let text = RustText::new("fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\nfn c() {}");
        let code = text.production_code();
        assert!(code.contains("fn a") && code.contains("fn c") && !code.contains("fn b"), "{code}");
    }

    #[test]
    fn a_function_is_as_long_as_its_lines() {
        let found =
            functions("trait T { fn open(&self) -> [u8; 4]; }\nfn long(a: [u8; 2]) -> u8 {\n  if a {\n  }\n}\n");
        assert_eq!(found, [Function { name: "long".into(), line: 2, lines: 4 }]);
    }

    #[test]
    fn arms_are_found_with_and_without_braces() {
        let code = "match f(a, |b| b) { A::X { n } if n == (1) => { match n { _ => 1 } } A::Y => g(1, 2),\n _ => 0 }";
        let found = matches(code);
        let first: Vec<&str> = found[0].patterns.iter().map(|(pattern, _)| pattern.as_str()).collect();
        assert_eq!(first, ["A::X { n } if n == (1)", "A::Y", "_"]);
        assert_eq!(found[0].patterns[2].1, 2);
        assert_eq!(found[1].patterns.len(), 1);
    }
}
