//! Silences: created and lifted by an operator, ended by their expiry.

use std::time::Duration;

use super::{Refused, Request};
use crate::change::{Change, Commit, Removed};
use crate::ids::{CorrelationId, Generation, IdSource, SilenceId};
use crate::node::label;
use crate::silence::{LONGEST, Matcher, NODES_MAX, SILENCES_MAX, Silence};
use crate::time::{Timestamp, human};

/// The component that ends silences.
const SILENCES: &str = "silences";

/// Silences what `matcher` means for so long from now; `have` silences stand already.
///
/// # Errors
/// It would not end within 30 days, has no reason, does not say which nodes, names a kind that is not about nodes, or
/// there are too many.
pub fn create(
    request: &Request<'_>,
    matcher: Matcher,
    lasts: Duration,
    have: usize,
) -> Result<(Silence, Commit), Refused> {
    let invalid = |field, problem: String| Err(Refused::Invalid { field, problem });
    if lasts.is_zero() || lasts > LONGEST {
        let problem = format!("must be more than 0 and at most {}: silence it again then, or mend it", human(LONGEST));
        return invalid("for_ms", problem);
    }
    if request.reason.trim().is_empty() {
        return invalid("reason", "is missing: it is shown to everybody who wonders".to_owned());
    }
    if let Some(kind) = matcher.kind.filter(|kind| !kind.is_about_nodes()) {
        return invalid("kind", format!("is {kind}, which is not about nodes: such incidents are not silenced"));
    }
    if !matcher.says_which() {
        let problem = "must name nodes, or give `selector` or `site`: the whole fleet is not silenced at once";
        return invalid("nodes", problem.to_owned());
    }
    if matcher.nodes.len() > NODES_MAX {
        let problem = format!("are {}: at most {NODES_MAX}; give `selector` or `site` instead", matcher.nodes.len());
        return invalid("nodes", problem);
    }
    label::check(&matcher.selector).map_err(|problem| Refused::Invalid { field: "selector", problem })?;
    if have >= SILENCES_MAX {
        let problem = format!(
            "cannot be silenced: {SILENCES_MAX} silences are in force; lift some, or give `selector` or `site`"
        );
        return invalid("nodes", problem);
    }
    let silence = Silence {
        id: SilenceId::generate(request.ids, request.now),
        matcher,
        by: request.actor.clone(),
        reason: request.reason.trim().to_owned(),
        created_at: request.now,
        until: request.now + lasts,
        generation: Generation::FIRST,
    };
    let commit = request.commit(Vec::new(), vec![Change::Silence(Box::new(silence.clone()))]);
    Ok((silence, commit))
}

/// Ends a silence before its expiry: what it hid needs attention again.
pub fn lift(request: &Request<'_>, silence: Silence) -> Commit {
    request.commit(Vec::new(), vec![Change::Removed(Box::new(Removed::Silence(silence)))])
}

/// Ends a silence whose expiry has come; none: it has not. It hides nothing from its expiry on, ended or not.
pub fn expire(silence: Silence, ids: &dyn IdSource, now: Timestamp) -> Option<Commit> {
    let request = Request::of_system(SILENCES, ids, now, CorrelationId::generate(ids, now));
    (!silence.is_in_force(now)).then(|| lift(&request, silence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::{Actor, Role};
    use crate::change::derive;
    use crate::ids::{NodeId, OpId, SiteId, uuid_v7};
    use crate::silence::{IncidentKind, NamedNode};

    const NOW: Timestamp = Timestamp::from_millis(1_763_712_000_000);
    const HOUR: Duration = Duration::from_secs(3_600);

    struct Ids;

    impl IdSource for Ids {
        fn uuid(&self, at: Timestamp) -> uuid::Uuid {
            uuid_v7(at, [7; 10])
        }
    }

    fn request(reason: &str) -> Request<'static> {
        Request {
            actor: Actor { name: "ada".to_owned(), role: Role::PlatformAdmin },
            reason: reason.to_owned(),
            now: NOW,
            ids: &Ids,
            op: OpId::generate(&Ids, NOW),
            correlation: CorrelationId::generate(&Ids, NOW),
        }
    }

    fn of_site() -> Matcher {
        Matcher { site: Some(SiteId::new(uuid_v7(NOW, [1; 10]))), ..Matcher::default() }
    }

    fn names(commit: &Commit) -> Vec<String> {
        commit.changes.iter().flat_map(|change| derive(commit, change).events).map(|event| event.name).collect()
    }

    #[test]
    fn a_silence_has_an_owner_a_reason_and_an_end() {
        let (silence, commit) = create(&request("a rack is moved"), of_site(), HOUR, 0).unwrap();
        assert_eq!((silence.by.name.as_str(), silence.reason.as_str()), ("ada", "a rack is moved"));
        assert_eq!(silence.until, NOW + HOUR);
        assert_eq!(names(&commit), ["silence.created"]);
        assert!(create(&request("x"), of_site(), LONGEST, SILENCES_MAX - 1).is_ok(), "30 days are allowed");
    }

    #[test]
    fn what_would_hide_too_much_or_too_long_is_refused_with_a_remedy() {
        let many = |count: usize| {
            let node = NamedNode { id: NodeId::new(uuid_v7(NOW, [1; 10])), hostname: "c07u43".to_owned() };
            Matcher { nodes: vec![node; count], ..Matcher::default() }
        };
        let of_kind = |kind| Matcher { kind: Some(kind), ..of_site() };
        let bad_label = Matcher { selector: [("a b".to_owned(), "c".to_owned())].into(), ..Matcher::default() };
        let rows = [
            ("x", of_site(), Duration::ZERO, 0, "for_ms", "more than 0"),
            ("x", of_site(), LONGEST + Duration::from_millis(1), 0, "for_ms", "at most 30 days"),
            ("  ", of_site(), HOUR, 0, "reason", "is missing"),
            ("x", Matcher::default(), HOUR, 0, "nodes", "must name nodes"),
            ("x", Matcher { kind: Some(IncidentKind::NodeDown), ..Matcher::default() }, HOUR, 0, "nodes", "must name"),
            ("x", of_kind(IncidentKind::WebhookFailing), HOUR, 0, "kind", "not about nodes"),
            ("x", many(NODES_MAX + 1), HOUR, 0, "nodes", "give `selector` or `site` instead"),
            ("x", bad_label, HOUR, 0, "selector", "letters"),
            ("x", of_site(), HOUR, SILENCES_MAX, "nodes", "lift some"),
        ];
        for (reason, matcher, lasts, have, field, said) in rows {
            let refused = create(&request(reason), matcher, lasts, have).unwrap_err();
            let Refused::Invalid { field: named, problem } = &refused else { panic!("{refused:?}") };
            assert_eq!(*named, field, "{problem}");
            assert!(problem.contains(said), "{problem}");
        }
    }

    #[test]
    fn it_ends_when_it_is_lifted_or_at_its_expiry_and_not_before() {
        let (silence, _) = create(&request("x"), of_site(), HOUR, 0).unwrap();
        assert_eq!(names(&lift(&request(""), silence.clone())), ["silence.lifted"]);
        assert_eq!(expire(silence.clone(), &Ids, silence.until - Duration::from_millis(1)), None);
        let ended = expire(silence.clone(), &Ids, silence.until).unwrap();
        assert_eq!(names(&ended), ["silence.expired"]);
        assert_eq!(ended.actor, Actor::system("silences"));
    }
}
