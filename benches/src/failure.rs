//! Why something could not be measured.

use std::error::Error;

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No benchmark of that name.
    #[error("there is no benchmark `{0}`; there are: {list}", list = crate::suite::NAMES.join(", "))]
    UnknownName(String),
    /// A step failed.
    #[error("{what}: {why}")]
    Step {
        /// What was tried.
        what: &'static str,
        /// Why it failed, with its causes.
        why: String,
    },
}

/// Names the step that failed: `.map_err(at("open the store"))`.
pub fn at<E: Into<Box<dyn Error + Send + Sync>>>(what: &'static str) -> impl FnOnce(E) -> Failure {
    move |error| {
        let error: Box<dyn Error + Send + Sync> = error.into();
        let mut why = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            why.push_str(&format!(": {source}"));
            cause = source.source();
        }
        Failure::Step { what, why }
    }
}

/// A step whose result is not what it must be.
pub fn wrong(what: &'static str, why: impl Into<String>) -> Failure {
    Failure::Step { what, why: why.into() }
}
