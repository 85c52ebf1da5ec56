//! Seeded choices that do not depend on the order in which they are asked for.
//!
//! A stream of random numbers would give machine 7 another delay as soon as machine 6 takes one draw more. Here every
//! choice is a function of the seed and of what it is for, so that concurrent clients see the same machines.

/// A seed with which choices are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dice(pub u64);

impl Dice {
    /// 64 bits that depend on the seed and on `about` alone.
    pub fn bits(self, about: &[u64]) -> u64 {
        about.iter().fold(mix(self.0), |state, item| mix(state ^ mix(*item)))
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(self, bound: u64, about: &[u64]) -> u64 {
        self.bits(about) % bound
    }

    /// Text of `length` characters out of `alphabet`.
    pub fn word(self, alphabet: &str, length: usize, about: &[u64]) -> String {
        let letters: Vec<char> = alphabet.chars().collect();
        let mut state = self.bits(about);
        let mut out = String::with_capacity(length);
        for _ in 0..length {
            out.push(letters[(state % letters.len() as u64) as usize]);
            state = mix(state);
        }
        out
    }
}

/// Folds text into a number that can stand in the `about` of a choice.
pub fn text_key(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The finalizer of splitmix64.
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_depends_on_the_seed_and_its_subject_alone() {
        assert_eq!(Dice(1).bits(&[3, 4]), Dice(1).bits(&[3, 4]));
        assert_ne!(Dice(1).bits(&[3, 4]), Dice(2).bits(&[3, 4]));
        assert_ne!(Dice(1).bits(&[3, 4]), Dice(1).bits(&[4, 3]));
        assert_eq!(Dice(9).word("abc", 6, &[1]).len(), 6);
    }
}
