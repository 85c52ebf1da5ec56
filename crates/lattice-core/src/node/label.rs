//! Labels of nodes: what an operator says of them, and how they are chosen by it. design: 2-state-model "Brake", "Allocations"

use std::collections::BTreeMap;

/// Names and values, such as `rack=c07`. As a selector: a node is meant when it has all of them.
pub type Labels = BTreeMap<String, String>;

/// Most labels of one node.
pub const MOST: usize = 64;
/// Longest name, and longest value.
const LONGEST: usize = 63;

/// Whether every label of `selector` is one of `labels`; an empty selector means every node.
pub fn selects(selector: &Labels, labels: &Labels) -> bool {
    selector.iter().all(|(name, value)| labels.get(name) == Some(value))
}

/// Checks names and values.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn check(labels: &Labels) -> Result<(), String> {
    if labels.len() > MOST {
        return Err(format!("has {} labels: at most {MOST} are kept", labels.len()));
    }
    for (name, value) in labels {
        for (what, text) in [("name", name), ("value", value)] {
            if !is_fine(text) {
                return Err(format!(
                    "has the {what} `{}`: must be 1 to {LONGEST} letters, digits, dots, hyphens, slashes or underscores",
                    text.chars().take(LONGEST).collect::<String>()
                ));
            }
        }
    }
    Ok(())
}

fn is_fine(text: &str) -> bool {
    (1..=LONGEST).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(all: &[(&str, &str)]) -> Labels {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_selector_means_the_nodes_that_have_all_of_it() {
        let node = labels(&[("rack", "c07"), ("row", "4")]);
        assert!(selects(&labels(&[]), &node));
        assert!(selects(&labels(&[("rack", "c07")]), &node));
        assert!(!selects(&labels(&[("rack", "c07"), ("row", "5")]), &node));
        assert!(!selects(&labels(&[("zone", "a")]), &node));
    }

    #[test]
    fn what_could_not_be_typed_or_found_again_is_refused() {
        assert_eq!(check(&labels(&[("rack", "c07"), ("a.b/c-d_e", "X")])), Ok(()));
        for (name, value) in [("", "x"), ("x", ""), ("a b", "x"), ("x", "\"%"), ("x=y", "z")] {
            assert!(check(&labels(&[(name, value)])).is_err(), "{name}={value}");
        }
    }
}
