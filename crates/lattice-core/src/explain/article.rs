//! What each error means and what to do about it; `docs/errors` is drawn from here.

use super::Code;

/// The article about one error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Article {
    /// About which error.
    pub code: Code,
    /// What happened; also that nothing was changed, where nothing was.
    pub meaning: &'static str,
    /// What an operator does about it; commands as they are typed.
    pub remedy: &'static str,
}

const fn article(code: Code, meaning: &'static str, remedy: &'static str) -> Article {
    Article { code, meaning, remedy }
}

/// One article for each code, in the order of their numbers.
pub const ARTICLES: &[Article] = &[
    article(
        Code::Malformed,
        "The request cannot be parsed: not JSON, a field is missing or of another type. Nothing was changed.",
        "The detail names the field and what was expected. Correct the request; `GET /api/v1/openapi.json` describes each one.",
    ),
    article(
        Code::Unauthenticated,
        "The request carries no credential, or one that is unknown, withdrawn or expired.",
        "Set `LATTICE_TOKEN` or `--token-file` to a valid token. `lattice token create` issues one, with a token that may.",
    ),
    article(
        Code::Forbidden,
        "The caller is known, and its role does not allow this.",
        "Ask somebody whose role does, or issue a token of that role with `lattice token create NAME --role ROLE`.",
    ),
    article(
        Code::NotFound,
        "Nothing has that id or name, or the caller may not see it.",
        "List what there is: `lattice node list`, `lattice job list`, `lattice site list`.",
    ),
    article(
        Code::StaleVersion,
        "The row changed after it was read, so the change was not applied.",
        "Read it again, look at what changed, and repeat the request with the new version.",
    ),
    article(
        Code::KeyReused,
        "The idempotency key was used before, with another request. The earlier request stands; this one did nothing.",
        "Use a new key for a new request; repeat the old request unchanged to get its answer again.",
    ),
    article(
        Code::TooLarge,
        "The body is larger than this endpoint reads.",
        "Send less at once: fewer items, or several requests.",
    ),
    article(
        Code::RateLimited,
        "Too many requests came from this caller in a short time.",
        "Wait as long as `Retry-After` says.",
    ),
    article(
        Code::Unavailable,
        "The server is starting, stopping or cannot reach its store.",
        "Repeat the request in a moment, or send it to another server. Requests with an idempotency key are safe to repeat.",
    ),
    article(
        Code::Invalid,
        "A value is well formed and still not acceptable.",
        "The facts name the value and the rule it breaks.",
    ),
    article(
        Code::Taken,
        "Another row has that name or address.",
        "Choose another one, or look at the row that has it: the facts name it.",
    ),
    article(
        Code::Unsupported,
        "The path does not know this method or this media type.",
        "Bodies are `application/json`; `GET /api/v1/openapi.json` lists the methods.",
    ),
    article(
        Code::Internal,
        "The server failed in a way that it did not expect. Nothing that was not acknowledged was kept.",
        "The correlation id finds the log lines: keep it, and report it with the version (`lattice version`).",
    ),
    article(
        Code::NodeState,
        "The node's status or availability has no such edge: the request was refused and nothing changed.",
        "The facts name both states, the next actions what is possible from there. `docs/state-model.md` draws all edges.",
    ),
    article(
        Code::NodeHeld,
        "A hold stands on the node.",
        "`lattice hold list NODE` says who set it and why; `lattice hold clear NODE KIND` clears those that are set by hand.",
    ),
    article(
        Code::NodeBusy,
        "A job already owns the node, and two may not work on it at once.",
        "Wait for it (`lattice job watch JOB`) or stop it (`lattice job cancel JOB`).",
    ),
    article(
        Code::ConfirmationNeeded,
        "The action disturbs running work or cannot be undone, and was not confirmed.",
        "Read the effect, then confirm: answer the question, or give `--yes`.",
    ),
    article(
        Code::HealthCheckFailed,
        "The node was heard, and what it has does not match its SKU, or it reported nothing yet.",
        "The facts compare what is there with what the SKU asks for. Repair the host, or correct the SKU.",
    ),
    article(
        Code::JobNotResumable,
        "The job's status does not allow this action.",
        "`lattice explain job JOB` lists the actions that it allows now.",
    ),
    article(
        Code::DecisionNeeded,
        "The stage cannot choose by itself and asks for a decision.",
        "Give one of the choices in the facts: `lattice job resume JOB --decide KEY=VALUE`.",
    ),
    article(
        Code::NothingObserved,
        "No fresh observation proves a later state, so there is nothing to adopt.",
        "Make sure that the provider can be reached (`lattice site probe SITE`), then repeat.",
    ),
    article(
        Code::BatchOver,
        "The batch is over, or it was cancelled: it starts nothing more, and nothing was changed.",
        "`lattice onboarding batch show BATCH` lists its machines; each can be resumed or cancelled by itself.",
    ),
    article(Code::SiteDisabled, "The site takes no new work.", "`lattice site enable SITE`, or choose another site."),
    article(
        Code::SiteCredentials,
        "The site has no credentials, or its provider refused them.",
        "Store them: `lattice site credentials set SITE --from-file FILE`, then `lattice site probe SITE`.",
    ),
    article(
        Code::Provider,
        "The provider refused the request, or could not be reached.",
        "`lattice site probe SITE` shows what it answers. Repair the provider; the job tries again by itself where that is safe.",
    ),
    article(
        Code::SecretStore,
        "The secret store is sealed, cannot be reached, or refuses what was asked. Nothing was changed.",
        "The detail says which of these, and what to do; docs/guides/vault.md has the rest. Jobs that need a secret wait, try again, and are resumed by themselves once the store is back; `lattice job resume JOB` does it at once.",
    ),
    article(
        Code::TokenUsed,
        "The enrolment token was used before. Each is good for one host, once.",
        "If the same host enrols again, issue a new one: `lattice node create`. If it was another host, withdraw the node.",
    ),
    article(
        Code::TokenExpired,
        "The enrolment token came too late.",
        "Issue a new one with `lattice node bootstrap`, or resume the onboarding job, which issues its own.",
    ),
    article(
        Code::TokenUnknown,
        "Nobody issued this enrolment token, or it was withdrawn.",
        "Copy the bootstrap command again, whole; or issue a new one with `lattice node create`.",
    ),
    article(
        Code::TokenForeign,
        "The enrolment token belongs to another node.",
        "Run each host's own bootstrap command on it.",
    ),
    article(
        Code::CertificateForeign,
        "The certificate belongs to another node than the path names. The request was refused and audited.",
        "Look at where the certificate came from: a copied disk image carries the identity of its origin. Enrol the copy as a node of its own.",
    ),
    article(
        Code::CertificateRevoked,
        "The node's certificates were revoked.",
        "If that was intended, nothing. Else onboard the node again to give it a new identity.",
    ),
    article(
        Code::CertificateExpired,
        "The certificate is past its end: the agent was away for longer than its life, or a clock is wrong.",
        "Check the clocks; then enrol the agent again with a new token.",
    ),
    article(
        Code::HeartbeatReplayed,
        "The heartbeat's sequence did not grow within its session: a repeat, or two agents with one identity.",
        "One is harmless. Many mean that two hosts share an identity: `lattice node show NODE` names the boot id and the address.",
    ),
    article(
        Code::SessionUnknown,
        "The server does not know the heartbeat's session, after a restart for example. The agent registers again by itself.",
        "Nothing. If it repeats, two servers answer at one address without sharing their store.",
    ),
    article(
        Code::CertificateRequest,
        "The certificate request cannot be signed: not PKCS #10, another kind of key, or a wrong signature.",
        "Agents of this version make the right one; check what sent it.",
    ),
    article(
        Code::TaskOver,
        "The task ended before, with another report, or its agent has it already and it cannot be withdrawn. Nothing was changed.",
        "`lattice node task ID` shows what its agent said. A new request gets a new task.",
    ),
    article(
        Code::StandsBy,
        "The server stands by: of several servers on one database another one hears the agents, and is named as far as it is known.",
        "Nothing: agents go there by themselves. If none hears them, ask each server's `/readyz` for `hears_agents` and look at its log.",
    ),
    article(
        Code::NoEvidence,
        "An agent reported a wipe as done, and its evidence does not cover each device, or does not say by which tool and with which result. The report was refused: nothing counts as wiped.",
        "`lattice node task ID` shows what is missing. Repeat the wipe; if a tool is missing on the host, install it first.",
    ),
    article(
        Code::AllocationOver,
        "The allocation is over, or it stands where what was asked does nothing. Nothing was changed.",
        "`lattice explain allocation ID` says where it stands and what may be asked of it.",
    ),
    article(
        Code::DataDirectoryBusy,
        "Another server owns the data directory. This one refused to start, and changed nothing.",
        "Stop the other one, or give this one a directory of its own. The lock ends with its process.",
    ),
    article(
        Code::SchemaNewer,
        "The data was written by a newer version. This one refused to start, and changed nothing.",
        "Start the newer version again, or restore a backup of this version into an empty directory: `lattice restore`.",
    ),
];

impl Code {
    /// Its kind in a few words: `HeartbeatReplayed` reads "heartbeat replayed".
    pub fn title(self) -> String {
        let name: &'static str = self.into();
        let mut title = String::with_capacity(name.len() + 4);
        for letter in name.chars() {
            if letter.is_ascii_uppercase() && !title.is_empty() {
                title.push(' ');
            }
            title.push(letter.to_ascii_lowercase());
        }
        title
    }

    /// What it means and what to do about it.
    pub fn article(self) -> &'static Article {
        ARTICLES.iter().find(|article| article.code == self).expect("a test holds the table complete")
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    #[test]
    fn every_code_has_one_article_in_order() {
        let codes: Vec<Code> = ARTICLES.iter().map(|article| article.code).collect();
        assert_eq!(codes, Code::VARIANTS);
    }

    #[test]
    fn an_article_ends_its_sentences() {
        for article in ARTICLES {
            assert!(article.meaning.ends_with('.') && article.remedy.ends_with('.'), "{}", article.code.text());
        }
    }
}
