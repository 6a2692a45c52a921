/// Why an HSM gives no signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HsmError {
    /// It does not take the PIN. Whoever tries that again locks the token.
    #[error("{0}")]
    Pin(String),
    /// What is configured cannot work: no such library, no such key, another key.
    #[error("{0}")]
    Key(String),
    /// It does not answer, or fails now; that may pass.
    #[error("{0}")]
    Device(String),
}

impl HsmError {
    /// On one line, as the helper says it.
    pub(crate) fn to_line(&self) -> String {
        let (word, text) = match self {
            Self::Pin(text) => ("pin", text),
            Self::Key(text) => ("key", text),
            Self::Device(text) => ("device", text),
        };
        format!("error {word} {}", text.replace(['\r', '\n'], " "))
    }

    /// What a helper's line says, if that is an error.
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let (word, text) = line.strip_prefix("error ")?.split_once(' ')?;
        let text = text.to_owned();
        Some(match word {
            "pin" => Self::Pin(text),
            "key" => Self::Key(text),
            _ => Self::Device(text),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_cross_the_pipe_on_one_line() {
        for e in [
            HsmError::Pin("no\nPIN".into()),
            HsmError::Key("k".into()),
            HsmError::Device("d".into()),
        ] {
            let line = e.to_line();
            assert!(!line.contains('\n'));
            let back = HsmError::of_line(&line).unwrap();
            assert_eq!(std::mem::discriminant(&back), std::mem::discriminant(&e));
        }
        assert_eq!(HsmError::of_line("00ff"), None);
    }
}
