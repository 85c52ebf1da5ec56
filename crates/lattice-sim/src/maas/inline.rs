//! The region without a socket: a transport for the MAAS client in the same process.

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use lattice_providers::error::{ErrorKind, ProviderError};
use lattice_providers::machine::maas::{self, MaasRequest, MaasResponse, MaasTransport};

use super::handle::MaasHandle;
use super::wire::{Method, Params, Request, Response};

/// Carries calls to a region in the same process.
#[derive(Clone)]
pub struct InlineTransport(pub MaasHandle);

#[async_trait]
impl MaasTransport for InlineTransport {
    async fn send(&self, request: &MaasRequest) -> Result<MaasResponse, ProviderError> {
        let answer = match Method::parse(request.method.as_str()) {
            Some(method) => {
                let call = to_call(request, method);
                tokio::time::timeout(request.timeout, self.0.call(&call)).await.ok()
            }
            None => Some(Response::text(405, "Method Not Allowed")),
        };
        let failed = |kind| Err(ProviderError::new(format!("maas {}", request.call), kind));
        match answer {
            None => failed(ErrorKind::Timeout { limit: request.timeout }),
            Some(answer) if answer.dropped => {
                failed(ErrorKind::Ambiguous { detail: "the region closed the connection".to_owned() })
            }
            Some(answer) if answer.body.len() > request.body_limit => {
                failed(ErrorKind::Malformed { what: "the answer is larger than the request allows".to_owned() })
            }
            Some(answer) => Ok(to_answer(answer)),
        }
    }
}

fn to_call(request: &MaasRequest, method: Method) -> Request {
    let pairs = |params: &maas::Params| {
        Params::new(params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    };
    let authorization = request.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    Request {
        method,
        path: format!("/MAAS/api/2.0/{}", request.path),
        query: pairs(&request.query),
        form: pairs(&request.form),
        raw: Vec::new(),
        authorization,
    }
}

fn to_answer(answer: Response) -> MaasResponse {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    if let Some(seconds) = answer.retry_after_s {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    let status = http::StatusCode::from_u16(answer.status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    MaasResponse { status, headers, body: Bytes::from(answer.body) }
}
