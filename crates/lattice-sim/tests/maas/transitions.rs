//! The status table against section 3 of the contract, row by row.

use std::collections::BTreeSet;

use lattice_sim::maas::status::{ABORTABLE, NodeStatus, RELEASABLE, STATUSES};

#[test]
fn every_row_of_the_contract_is_a_row_of_the_table_and_no_other_is() {
    let text = include_str!("../fixtures/maas-status-table.txt");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), STATUSES.len());
    for (line, row) in rows.iter().zip(&STATUSES) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let number = |status: &NodeStatus| status.number().to_string();
        let may: Vec<String> = row.may_go_to.iter().map(number).collect();
        let fails = row.fails_to.as_ref().map(number).unwrap_or_default();
        assert_eq!(cells, [number(&row.status).as_str(), row.api_name, row.label, &may.join(", "), &fails]);
        assert_eq!(NodeStatus::from_api_name(row.api_name), Some(row.status));
        assert_eq!(row.status.row().label, row.label);
    }
}

#[test]
fn every_one_of_the_529_pairs_is_allowed_exactly_when_the_table_says_so() {
    let mut allowed = 0;
    for from in &STATUSES {
        for to in &STATUSES {
            let expected = from.status == to.status || from.may_go_to.contains(&to.status);
            assert_eq!(from.status.may_go_to(to.status), expected);
            allowed += usize::from(expected);
        }
    }
    let edges: usize = STATUSES.iter().map(|row| row.may_go_to.len()).sum();
    assert_eq!(allowed, edges + STATUSES.len() - STATUSES.iter().filter(|r| r.may_go_to.contains(&r.status)).count());
}

#[test]
fn what_can_be_released_or_aborted_can_go_where_that_leads() {
    for status in RELEASABLE {
        assert!(status.may_go_to(NodeStatus::Releasing) || status.may_go_to(NodeStatus::Ready), "{status:?}");
    }
    let numbers: BTreeSet<u8> = RELEASABLE.iter().map(|status| status.number()).collect();
    assert_eq!(numbers, BTreeSet::from([10, 5, 8, 9, 6, 11, 15, 13]));
    assert_eq!(ABORTABLE.map(NodeStatus::number), [1, 9, 14, 21]);
}
