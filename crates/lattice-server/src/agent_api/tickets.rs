//! Session tickets that outlive the process: a fleet that comes back after a restart resumes, at half the cost of full
//! handshakes. Every server over the same secret store makes the same keys, so an agent resumes at any of them.
//!
//! A key serves for one [`PERIOD`] and is derived from the installation's seed and the period's number: nothing has to be
//! written or shared while it runs. A resumed session of TLS 1.3 exchanges fresh keys, so a seed that leaks one day opens
//! nothing that was said before. design: 4 "Identity and transport"

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hmac, rand};
use lattice_core::secret::Secret;
use lattice_core::time::Clock;
use rustls::server::ProducesTickets;

/// How long a key seals tickets. It opens them for one more period, so a ticket is good for 6 to 12 hours: shorter than
/// any certificate.
const PERIOD: Duration = Duration::from_secs(6 * 3600);

/// Seals what a session is resumed with.
pub(super) struct Tickets {
    seed: Secret<Vec<u8>>,
    clock: Arc<dyn Clock>,
}

impl Tickets {
    pub(super) fn new(seed: Secret<Vec<u8>>, clock: Arc<dyn Clock>) -> Self {
        Self { seed, clock }
    }

    fn period(&self) -> u32 {
        let millis = self.clock.now().as_millis().max(0).unsigned_abs();
        u32::try_from(u128::from(millis) / PERIOD.as_millis()).unwrap_or(u32::MAX)
    }

    fn key(&self, period: [u8; 4]) -> LessSafeKey {
        let seed = hmac::Key::new(hmac::HMAC_SHA256, self.seed.expose());
        let derived = hmac::sign(&seed, &[b"lattice session tickets".as_slice(), &period].concat());
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, derived.as_ref()).expect("SHA-256 gives 32 bytes"))
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        PERIOD.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let period = self.period().to_be_bytes();
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let key = self.key(period);
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(period), &mut sealed).ok()?;
        Some([period.as_slice(), &nonce, &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (period, rest) = ticket.split_first_chunk::<4>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        // One period back; and one ahead, for servers whose clocks differ at the change.
        if self.period().abs_diff(u32::from_be_bytes(*period)) > 1 {
            return None;
        }
        let mut plain = sealed.to_vec();
        let key = self.key(*period);
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = key.open_in_place(nonce, Aad::from(*period), &mut plain).ok()?.len();
        plain.truncate(length);
        Some(plain)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets")
    }
}

#[cfg(test)]
mod tests {
    use lattice_core::time::Timestamp;

    use super::*;

    struct At(Timestamp);

    impl Clock for At {
        fn now(&self) -> Timestamp {
            self.0
        }
    }

    fn tickets(seed: u8, hours: i64) -> Tickets {
        let now = Timestamp::from_millis(1_763_712_000_000 + hours * 3_600_000);
        Tickets::new(Secret::new(vec![seed; 32]), Arc::new(At(now)))
    }

    #[test]
    fn a_ticket_is_good_after_a_restart_and_not_for_longer_than_two_periods() {
        let ticket = tickets(1, 0).encrypt(b"session").unwrap();
        for (hours, good) in [(0, true), (6, true), (-6, true), (12, false), (24 * 365, false)] {
            assert_eq!(
                tickets(1, hours).decrypt(&ticket).as_deref(),
                good.then_some(b"session".as_slice()),
                "{hours} h"
            );
        }
        assert_eq!(tickets(2, 0).decrypt(&ticket), None, "another installation's");
        assert_ne!(tickets(1, 0).encrypt(b"session").unwrap(), ticket, "no two look the same");
    }

    #[test]
    fn a_ticket_that_was_changed_or_cut_opens_nothing() {
        let tickets = tickets(1, 0);
        let ticket = tickets.encrypt(b"session").unwrap();
        for at in 0..ticket.len() {
            assert_eq!(tickets.decrypt(&ticket[..at]), None, "cut at {at}");
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(tickets.decrypt(&changed), None, "changed at {at}");
        }
    }
}
