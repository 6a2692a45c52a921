use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use hpc_schema::code::Code;
use hpc_schema::refusal::Refusal;

use super::answer::Failure;

/// The ids of a request's path. What cannot be read is refused with a code, like everything else.
#[derive(Debug)]
pub(super) struct PathIds<T>(pub(super) T);

impl<S, T> FromRequestParts<S> for PathIds<T>
where
    S: Send + Sync,
    Path<T>: FromRequestParts<S, Rejection = PathRejection>,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(ids)) => Ok(Self(ids)),
            Err(e) => Err(Failure::new(
                400,
                Refusal::field(Code::Malformed, "path", e.body_text()).malformed(),
            )),
        }
    }
}
