//! What a benchmark says: figures with their targets, and the peers' figures beside them.

use serde::Serialize;
use serde_json::json;

/// What a figure should be. design: 7
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
    /// Only told.
    Informative,
}

/// One measured number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// What it should be.
    pub target: Target,
}

/// One benchmark's outcome: one line.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    name: String,
    figures: Vec<Figure>,
    conditions: String,
    peer: Option<&'static str>,
    notes: Vec<String>,
}

impl Target {
    fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtMost(most) => Some(value <= most),
            Self::AtLeast(least) => Some(value >= least),
            Self::Informative => None,
        }
    }

    fn text(self, value: f64) -> String {
        let word = if self.is_met(value) == Some(false) { ", MISSED" } else { "" };
        match self {
            Self::AtMost(most) => format!(" (target ≤ {}{word})", short(most)),
            Self::AtLeast(least) => format!(" (target ≥ {}{word})", short(least)),
            Self::Informative => String::new(),
        }
    }
}

impl Report {
    /// A report of the benchmark `name`, measured under `conditions`.
    pub fn new(name: impl Into<String>, conditions: impl Into<String>) -> Self {
        Self { name: name.into(), figures: Vec::new(), conditions: conditions.into(), peer: None, notes: Vec::new() }
    }

    /// Adds a figure.
    #[must_use]
    pub fn figure(mut self, what: impl Into<String>, value: f64, unit: &'static str, target: Target) -> Self {
        self.figures.push(Figure { what: what.into(), value, unit, target });
        self
    }

    /// Names the peer's figure, which was not measured in this run.
    #[must_use]
    pub fn peer(mut self, figure: &'static str) -> Self {
        self.peer = Some(figure);
        self
    }

    /// Adds what a reader must know to judge the figures.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// One line for people.
    pub fn text(&self) -> String {
        let figures: Vec<String> = self
            .figures
            .iter()
            .map(|figure| {
                let Figure { what, value, unit, target } = figure;
                format!("{what} {} {unit}{}", short(*value), target.text(*value))
            })
            .collect();
        let mut line = format!("{}: {} [{}]", self.name, figures.join("; "), self.conditions);
        if let Some(peer) = self.peer {
            line.push_str(&format!("; peer figure measured elsewhere on this kind of machine: {peer}"));
        }
        for note in &self.notes {
            line.push_str(&format!("; note: {note}"));
        }
        line
    }

    /// One object for programs, in one line.
    pub fn json(&self) -> String {
        let figures: Vec<_> = self
            .figures
            .iter()
            .map(|figure| {
                json!({"what": figure.what, "value": figure.value, "unit": figure.unit, "target": figure.target,
                    "met": figure.target.is_met(figure.value)})
            })
            .collect();
        json!({"name": self.name, "figures": figures, "conditions": self.conditions,
            "peer_measured_elsewhere": self.peer, "notes": self.notes})
        .to_string()
    }
}

/// Three significant digits, without an exponent.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size == 0.0 || size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_is_said_in_both_forms() {
        let report = Report::new("x", "idle")
            .figure("CPU", 30.0, "µs", Target::AtMost(25.0))
            .figure("rate", 400.0, "per s", Target::AtLeast(300.0))
            .peer("Y 93 µs");
        assert_eq!(
            report.text(),
            "x: CPU 30 µs (target ≤ 25, MISSED); rate 400 per s (target ≥ 300) [idle]; \
             peer figure measured elsewhere on this kind of machine: Y 93 µs"
        );
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!((&json["figures"][0]["met"], &json["figures"][1]["met"]), (&json!(false), &json!(true)));
    }

    #[test]
    fn numbers_keep_three_digits() {
        let texts: Vec<_> = [0.0, 0.0644, 2.5, 19.44, 1234.5].map(short).into();
        assert_eq!(texts, ["0", "0.064", "2.5", "19.4", "1234"]);
    }
}
