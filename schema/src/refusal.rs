//! Why something that came in is refused: a stable code, the field, a sentence with its remedy.

use std::fmt;

use crate::code::Code;

/// Whether the bytes could not be read at all, or were read and refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// JSON, base64 or a fixed length is broken: HTTP 400, problem+json.
    Malformed,
    /// Read and refused: a heartbeat is answered with HTTP 200, `accepted: false`.
    Semantic,
}

/// One refusal. Its text names the field and ends with what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The stable code.
    pub code: Code,
    /// JSON path of the field at fault, such as `capacity.cpu_cores_available`.
    pub field: Option<String>,
    /// What is wrong and what to do about it, one sentence each.
    pub message: String,
    /// Malformed or semantic.
    pub kind: RefusalKind,
}

impl Refusal {
    /// A semantic refusal of `field`; `what` says what is wrong with it.
    #[must_use]
    pub fn field(code: Code, field: impl Into<String>, what: impl fmt::Display) -> Self {
        let field = field.into();
        let message = format!("{field}: {what}; {}", code.remedy());
        Self {
            code,
            field: Some(field),
            message,
            kind: RefusalKind::Semantic,
        }
    }

    /// A semantic refusal of the whole.
    #[must_use]
    pub fn whole(code: Code, what: impl fmt::Display) -> Self {
        Self::advised(code, what, code.remedy())
    }

    /// The same with a remedy of its own, where the code's does not help.
    #[must_use]
    pub fn advised(code: Code, what: impl fmt::Display, remedy: &str) -> Self {
        Self {
            code,
            field: None,
            message: format!("{what}; {remedy}"),
            kind: RefusalKind::Semantic,
        }
    }

    /// The same refusal, as one of bytes that could not be read.
    #[must_use]
    pub fn malformed(mut self) -> Self {
        self.kind = RefusalKind::Malformed;
        self
    }

    /// The HTTP status of a heartbeat that ends so: 400 malformed, 403 another node's certificate, else 200.
    #[must_use]
    pub fn heartbeat_status(&self) -> u16 {
        match (self.kind, self.code) {
            (RefusalKind::Malformed, _) => 400,
            (RefusalKind::Semantic, Code::IdentityMismatch) => 403,
            (RefusalKind::Semantic, _) => 200,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_field_and_ends_with_the_remedy() {
        let r = Refusal::field(
            Code::InvalidCapacity,
            "capacity.cpu_cores_total",
            "must be at least 1",
        );
        assert_eq!(
            r.message,
            "capacity.cpu_cores_total: must be at least 1; correct the field named"
        );
        assert_eq!(r.heartbeat_status(), 200);
        assert_eq!(r.malformed().heartbeat_status(), 400);
        assert_eq!(
            Refusal::whole(Code::IdentityMismatch, "x").heartbeat_status(),
            403
        );
    }
}
