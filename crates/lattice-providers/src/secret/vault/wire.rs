//! One request to Vault and its answer. Redirects are not followed and no proxy is used: the token goes nowhere else.

use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};
use lattice_core::secret::Secret;
use serde::Deserialize;

use super::VaultSettings;
use super::error::VaultError;
use crate::error::ErrorKind;
use crate::machine::maas::transport::{chain, judge};
use crate::message;

/// Longest wait for a connection: Vault is in the same network.
const CONNECT: Duration = Duration::from_secs(3);
/// Largest answer: Vault itself takes no secret larger than this.
const LARGEST: usize = 1 << 20;
/// Idle connections that are kept; more would only wait for the same Vault.
const IDLE_CONNECTIONS: usize = 16;

/// The way to one Vault.
pub(super) struct Wire {
    client: reqwest::Client,
    namespace: Option<HeaderValue>,
    timeout: Duration,
    address: String,
}

/// A request. It has no `Debug`: it holds secrets.
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    /// Below `/v1/`.
    pub(super) path: &'a str,
    pub(super) token: Option<&'a Secret<String>>,
    /// JSON.
    pub(super) body: Option<&'a Secret<Vec<u8>>>,
}

/// An answer. Its body may be a secret.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    body: Secret<Vec<u8>>,
}

#[derive(Deserialize)]
struct Errors {
    errors: Vec<String>,
}

impl Wire {
    pub(super) fn new(settings: &VaultSettings) -> Result<Self, VaultError> {
        let unusable = |what: &str| VaultError::unusable(format!("secrets.vault_address {what}"));
        let url = reqwest::Url::parse(&settings.address).map_err(|error| unusable(&format!("is wrong: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(unusable("is not https://… with a host"));
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(unusable("must hold neither a login nor a query"));
        }
        let builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .http1_only()
            .connect_timeout(CONNECT)
            .timeout(settings.timeout)
            .pool_max_idle_per_host(IDLE_CONNECTIONS);
        let builder = match (url.scheme(), &settings.ca_pem) {
            // Without TLS there is nothing to verify; the system's authorities need not even be there.
            ("http", _) => builder.tls_certs_only([]),
            (_, None) => builder,
            (_, Some(pem)) => {
                let certificates = reqwest::Certificate::from_pem_bundle(pem)
                    .ok()
                    .filter(|certificates| !certificates.is_empty())
                    .ok_or_else(|| VaultError::unusable("secrets.vault_ca_file holds no certificate in PEM"))?;
                builder.tls_certs_only(certificates)
            }
        };
        let namespace = match settings.namespace.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => Some(
                HeaderValue::from_str(name)
                    .map_err(|_| VaultError::unusable("secrets.vault_namespace is not a name of a namespace"))?,
            ),
            None => None,
        };
        Ok(Self {
            client: builder.build().map_err(|error| VaultError::unusable(chain(&error.without_url())))?,
            namespace,
            timeout: settings.timeout,
            address: url.as_str().trim_end_matches('/').to_owned(),
        })
    }

    /// Where Vault is, as errors name it.
    pub(super) fn address(&self) -> String {
        self.address.clone()
    }

    pub(super) async fn send(&self, ask: Ask<'_>) -> Result<Reply, VaultError> {
        let mut builder = self
            .client
            .request(ask.method, format!("{}/v1/{}", self.address, ask.path))
            // Without it an agent in front of Vault refuses, as a guard against requests that it was tricked into.
            .header("x-vault-request", "true");
        if let Some(token) = ask.token {
            let mut value = HeaderValue::from_str(token.expose()).map_err(|_| VaultError::LoginUnreadable {
                login: "token",
                problem: "it holds characters that no token has".to_owned(),
            })?;
            value.set_sensitive(true);
            builder = builder.header("x-vault-token", value);
        }
        if let Some(namespace) = &self.namespace {
            builder = builder.header("x-vault-namespace", namespace.clone());
        }
        if let Some(body) = ask.body {
            builder = builder.header(http::header::CONTENT_TYPE, "application/json").body(body.expose().clone());
        }
        let failed = |error| self.lost(error);
        let mut response = builder.send().await.map_err(failed)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > LARGEST {
                return Err(self.malformed(format!("it is larger than {LARGEST} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Reply { status, body: Secret::new(body) })
    }

    fn lost(&self, error: reqwest::Error) -> VaultError {
        let address = self.address();
        match judge(error, self.timeout) {
            ErrorKind::BadCertificate { detail } => VaultError::Certificate { address, detail },
            ErrorKind::Timeout { limit } => VaultError::Timeout { address, limit },
            other => VaultError::Unreachable { address, detail: message::bounded(&other.to_string()) },
        }
    }

    pub(super) fn malformed(&self, what: impl Into<String>) -> VaultError {
        VaultError::Malformed { address: self.address(), what: what.into() }
    }

    /// What an answer means that is neither the wished one nor one that the caller knows.
    pub(super) fn refused(&self, reply: &Reply, secrets: &[&str]) -> VaultError {
        let (address, said) = (self.address(), reply.said(secrets));
        match reply.status.as_u16() {
            501 => VaultError::Uninitialised { address },
            503 if said.contains("sealed") => VaultError::Sealed { address },
            300..=399 | 472 | 473 => VaultError::Standby { address },
            200..=299 => self.malformed(format!("{} without what was asked for", reply.status)),
            status if reply.is_vaults() => VaultError::Failed { address, status, said },
            status if status >= 500 => VaultError::Failed { address, status, said },
            status => self.malformed(format!("{status}: {said}")),
        }
    }
}

impl Reply {
    /// The body as that type. What does not fit is not repeated: it may be a secret.
    pub(super) fn json<T: for<'de> Deserialize<'de>>(&self) -> Option<T> {
        serde_json::from_slice(self.body.expose()).ok()
    }

    /// Vault's words about a failure, without `secrets`.
    pub(super) fn said(&self, secrets: &[&str]) -> String {
        match self.json::<Errors>() {
            Some(list) if list.errors.is_empty() => "it gives no reason".to_owned(),
            Some(list) => message::bounded(&message::without_secrets(list.errors.join("; "), secrets)),
            None => message::of_body(self.body.expose(), secrets),
        }
    }

    /// Whether it has the form of Vault's own refusals: another server's 404 proves nothing.
    pub(super) fn is_vaults(&self) -> bool {
        self.json::<Errors>().is_some() || self.json::<Kept>().is_some()
    }
}

/// The form of a soft-deleted secret's answer.
#[derive(Deserialize)]
struct Kept {
    #[serde(rename = "data")]
    _data: serde::de::IgnoredAny,
}
