use std::borrow::Cow;

/// A parameter. Its type is known even where it is null, for PostgreSQL asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'q> {
    /// A number, time or yes and no (1 and 0).
    Int(Option<i64>),
    /// Text.
    Text(Option<Cow<'q, str>>),
    /// Bytes.
    Bytes(Option<Cow<'q, [u8]>>),
}

impl From<i64> for Value<'_> {
    fn from(n: i64) -> Self {
        Self::Int(Some(n))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(n: Option<i64>) -> Self {
        Self::Int(n)
    }
}

impl From<bool> for Value<'_> {
    fn from(yes: bool) -> Self {
        Self::Int(Some(i64::from(yes)))
    }
}

impl<'q> From<&'q str> for Value<'q> {
    fn from(s: &'q str) -> Self {
        Self::Text(Some(Cow::Borrowed(s)))
    }
}

impl<'q> From<&'q String> for Value<'q> {
    fn from(s: &'q String) -> Self {
        Self::Text(Some(Cow::Borrowed(s)))
    }
}

impl From<String> for Value<'_> {
    fn from(s: String) -> Self {
        Self::Text(Some(Cow::Owned(s)))
    }
}

impl<'q> From<Option<&'q str>> for Value<'q> {
    fn from(s: Option<&'q str>) -> Self {
        Self::Text(s.map(Cow::Borrowed))
    }
}

impl From<Option<String>> for Value<'_> {
    fn from(s: Option<String>) -> Self {
        Self::Text(s.map(Cow::Owned))
    }
}

impl<'q> From<&'q Option<String>> for Value<'q> {
    fn from(s: &'q Option<String>) -> Self {
        Self::Text(s.as_deref().map(Cow::Borrowed))
    }
}

impl<'q> From<&'q [u8]> for Value<'q> {
    fn from(b: &'q [u8]) -> Self {
        Self::Bytes(Some(Cow::Borrowed(b)))
    }
}

impl<'q> From<&'q Vec<u8>> for Value<'q> {
    fn from(b: &'q Vec<u8>) -> Self {
        Self::Bytes(Some(Cow::Borrowed(b)))
    }
}

impl From<Vec<u8>> for Value<'_> {
    fn from(b: Vec<u8>) -> Self {
        Self::Bytes(Some(Cow::Owned(b)))
    }
}

impl<'q> From<Option<&'q [u8]>> for Value<'q> {
    fn from(b: Option<&'q [u8]>) -> Self {
        Self::Bytes(b.map(Cow::Borrowed))
    }
}

impl From<Option<Vec<u8>>> for Value<'_> {
    fn from(b: Option<Vec<u8>>) -> Self {
        Self::Bytes(b.map(Cow::Owned))
    }
}
