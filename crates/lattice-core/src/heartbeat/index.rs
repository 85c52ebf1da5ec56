//! Finds the slot of a node: open addressing over slot numbers, 5 to 11 bytes per node where a map of ids takes 28 to 48.

use crate::ids::NodeId;

const EMPTY: u32 = u32::MAX;
const SMALLEST: usize = 64;

/// Slot numbers by node id. The ids themselves stay with the owner of the slots, who hands them in.
#[derive(Debug, Default)]
pub(super) struct Index {
    table: Vec<u32>,
    used: usize,
}

impl Index {
    /// The slot of `node`, if it has one. `nodes[slot]` is the id in that slot.
    pub(super) fn find(&self, node: NodeId, nodes: &[NodeId]) -> Option<u32> {
        self.place(node, nodes).map(|at| self.table[at])
    }

    /// Adds a slot whose id is in `nodes` and not in the index.
    pub(super) fn insert(&mut self, slot: u32, nodes: &[NodeId]) {
        if (self.used + 1) * 4 > self.table.len() * 3 {
            let grown = vec![EMPTY; (self.table.len() * 2).max(SMALLEST)];
            for moved in std::mem::replace(&mut self.table, grown) {
                if moved != EMPTY {
                    self.put(moved, nodes);
                }
            }
        }
        self.put(slot, nodes);
        self.used += 1;
    }

    /// Forgets `node` and closes the gap it leaves, so that no lookup stops at it.
    pub(super) fn remove(&mut self, node: NodeId, nodes: &[NodeId]) -> Option<u32> {
        let mut gap = self.place(node, nodes)?;
        let removed = self.table[gap];
        let mask = self.table.len() - 1;
        let mut at = (gap + 1) & mask;
        while self.table[at] != EMPTY {
            let home = self.home(nodes[self.table[at] as usize]);
            // The entry may fill the gap only if its home does not lie between the gap and itself.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.table[gap] = self.table[at];
                gap = at;
            }
            at = (at + 1) & mask;
        }
        self.table[gap] = EMPTY;
        self.used -= 1;
        Some(removed)
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.table.capacity() * size_of::<u32>()
    }

    fn place(&self, node: NodeId, nodes: &[NodeId]) -> Option<usize> {
        let mask = self.table.len().checked_sub(1)?;
        let mut at = self.home(node);
        while self.table[at] != EMPTY {
            if nodes[self.table[at] as usize] == node {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
        None
    }

    fn put(&mut self, slot: u32, nodes: &[NodeId]) {
        let mask = self.table.len() - 1;
        let mut at = self.home(nodes[slot as usize]);
        while self.table[at] != EMPTY {
            at = (at + 1) & mask;
        }
        self.table[at] = slot;
    }

    fn home(&self, node: NodeId) -> usize {
        // Ids are made by the server, so nobody can choose colliding ones; the factor spreads ids made in a row.
        let (high, low) = node.uuid().as_u64_pair();
        let mixed = (high ^ low.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.table.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(number: u16) -> NodeId {
        NodeId::new(uuid::Uuid::from_u128(u128::from(number)))
    }

    proptest! {
        #[test]
        fn the_index_agrees_with_a_plain_list(steps in proptest::collection::vec((0u16..200, any::<bool>()), 1..400)) {
            let nodes: Vec<_> = (0..200).map(node).collect();
            let mut present = [false; 200];
            let mut index = Index::default();
            for (number, add) in steps {
                let at = usize::from(number);
                if add && !present[at] {
                    index.insert(u32::from(number), &nodes);
                } else if !add {
                    let removed = index.remove(node(number), &nodes);
                    prop_assert_eq!(removed, present[at].then_some(u32::from(number)));
                }
                present[at] = add;
                for (slot, there) in present.iter().enumerate() {
                    prop_assert_eq!(index.find(nodes[slot], &nodes), there.then_some(slot as u32));
                }
            }
        }
    }
}
