//! Errors of the gateway as `application/problem+json` (RFC 9457).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::refusal::Refusal;

/// Body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Always `about:blank`: the code is the type.
    #[serde(rename = "type", default = "about_blank")]
    pub type_uri: String,
    /// The code's word; a client may meet one that it does not know.
    pub code: String,
    /// The HTTP status text.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong and what to do.
    pub detail: String,
    /// JSON path of the field at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

fn about_blank() -> String {
    "about:blank".into()
}

impl Problem {
    /// Media type of the body.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// A refusal as a problem with HTTP status `status`.
    #[must_use]
    pub fn new(status: u16, refusal: &Refusal) -> Self {
        Self {
            type_uri: about_blank(),
            code: refusal.code.as_str().to_owned(),
            title: title(status).to_owned(),
            status,
            detail: refusal.message.clone(),
            field: refusal.field.clone(),
        }
    }

    /// The code, if this version knows it.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        Code::from_word(&self.code)
    }
}

fn title(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Error",
    }
}
