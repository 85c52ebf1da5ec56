//! Words of the API that are typed on the command line.

use std::fmt::Display;
use std::str::FromStr;

use strum::VariantArray;

use crate::failure::Failure;

/// Reads a word; `-` and `_` are the same.
///
/// # Errors
/// It is none of them; the failure lists all.
pub fn word<T: FromStr + VariantArray + Display>(noun: &str, text: &str) -> Result<T, Failure> {
    text.replace('-', "_").parse().map_err(|_| {
        let words: Vec<String> = T::VARIANTS.iter().map(ToString::to_string).collect();
        Failure::refused(format!("`{text}` is no {noun}")).because(format!("expected one of {}", words.join(", ")))
    })
}

/// Reads a label or a variable: `NAME=VALUE`.
///
/// # Errors
/// It has no name, or no `=`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("must be NAME=VALUE".to_owned()),
    }
}
