//! Jobs whose turn may begin: a line for each site, served in rotation, so that a site with thousands of them neither
//! holds up the others nor is looked through again and again while it is at its limit.

use std::collections::{HashMap, VecDeque};

use lattice_core::ids::{JobId, SiteId};

/// The lines.
#[derive(Default)]
pub(super) struct ReadyJobs {
    lines: HashMap<SiteId, Line>,
    /// Sites with somebody in line, each once.
    rotation: VecDeque<SiteId>,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<JobId>,
    running: usize,
}

impl ReadyJobs {
    /// The job is ready.
    pub(super) fn push(&mut self, site: SiteId, job: JobId) {
        let line = self.lines.entry(site).or_default();
        if line.waiting.is_empty() {
            self.rotation.push_back(site);
        }
        line.waiting.push_back(job);
    }

    /// The next job of a site that has fewer than `per_site` turns; it counts as a turn until [`ReadyJobs::ended`].
    pub(super) fn start(&mut self, per_site: usize) -> Option<(SiteId, JobId)> {
        for _ in 0..self.rotation.len() {
            let site = self.rotation.pop_front()?;
            let Some(line) = self.lines.get_mut(&site) else { continue };
            let next = if line.running < per_site { line.waiting.pop_front() } else { None };
            line.running += usize::from(next.is_some());
            if !line.waiting.is_empty() {
                self.rotation.push_back(site);
            }
            if let Some(job) = next {
                return Some((site, job));
            }
        }
        None
    }

    /// A turn of the site ended, or did not begin after all.
    pub(super) fn ended(&mut self, site: SiteId) {
        let Some(line) = self.lines.get_mut(&site) else { return };
        line.running -= 1;
        if line.running == 0 && line.waiting.is_empty() {
            self.lines.remove(&site);
        }
    }
}

#[cfg(test)]
mod tests {
    use lattice_core::ids::uuid_v7;
    use lattice_core::time::Timestamp;

    use super::*;

    fn id(number: u8) -> uuid::Uuid {
        uuid_v7(Timestamp::from_millis(0), [number; 10])
    }

    fn started(ready: &mut ReadyJobs, per_site: usize) -> Vec<JobId> {
        std::iter::from_fn(|| ready.start(per_site)).map(|(_, job)| job).collect()
    }

    #[test]
    fn a_site_at_its_limit_holds_up_nobody_else_and_keeps_its_order() {
        let (crowded, quiet) = (SiteId::new(id(1)), SiteId::new(id(2)));
        let job = |number| JobId::new(id(number));
        let mut ready = ReadyJobs::default();
        for number in 10..15 {
            ready.push(crowded, job(number));
        }
        ready.push(quiet, job(20));
        assert_eq!(started(&mut ready, 2), [job(10), job(20), job(11)]);
        ready.ended(crowded);
        assert_eq!(started(&mut ready, 2), [job(12)]);
        ready.ended(quiet);
        ready.ended(crowded);
        ready.ended(crowded);
        assert_eq!(started(&mut ready, 2), [job(13), job(14)]);
        ready.ended(crowded);
        ready.ended(crowded);
        assert!(ready.lines.is_empty() && ready.rotation.is_empty());
    }
}
