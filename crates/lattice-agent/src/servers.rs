//! Which server an agent goes to: the one that it was given first, or the one that was named to it since.

/// What is known of servers. One that does not answer is not forgotten: it may be back when the other one is gone.
#[derive(Debug)]
pub struct Servers {
    given: String,
    /// The server that hears the agents, as another one named it last.
    named: Option<String>,
    /// The next connection goes to the one that was named.
    at_named: bool,
}

impl Servers {
    /// None but the one that was given.
    pub const fn given(server: String) -> Self {
        Self { given: server, named: None, at_named: false }
    }

    /// Where the next connection goes.
    pub fn next(&self) -> &str {
        self.named.as_deref().filter(|_| self.at_named).unwrap_or(&self.given)
    }

    /// A server names the one that hears the agents, or says that it is another one without knowing which.
    pub fn hears(&mut self, holder: Option<String>) {
        match holder {
            // The one that was named before is not forgotten for it: it is the way out when the given one is gone.
            Some(holder) if holder == self.given => self.at_named = false,
            Some(holder) => (self.named, self.at_named) = (Some(holder), true),
            None => self.unreachable(),
        }
    }

    /// The one that was to be reached does not answer: the other one is next, if there is one.
    pub fn unreachable(&mut self) {
        self.at_named = !self.at_named && self.named.is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_given_and_the_named_server_are_tried_in_turn_and_neither_is_forgotten() {
        let mut servers = Servers::given("a".to_owned());
        servers.unreachable();
        servers.hears(None);
        assert_eq!(servers.next(), "a", "there is no other one");
        servers.hears(Some("b".to_owned()));
        let mut tried = Vec::new();
        for _ in 0..4 {
            tried.push(servers.next().to_owned());
            servers.unreachable();
        }
        assert_eq!(tried, ["b", "a", "b", "a"]);
        servers.hears(Some("c".to_owned()));
        assert_eq!(servers.next(), "c");
        servers.hears(None);
        assert_eq!(servers.next(), "a");
        servers.hears(None);
        assert_eq!(servers.next(), "c", "the given one stands by, too");
        servers.hears(Some("a".to_owned()));
        assert_eq!(servers.next(), "a", "the given one hears");
        servers.unreachable();
        assert_eq!(servers.next(), "c", "and when it is gone, the one that was named before is tried");
    }
}
