//! Why a handshake fails, in few stable words: who is shown one kind of it hears of the others as well.

use std::io;

use rustls::{CertificateError, Error, PeerIncompatible};

/// What an operator is told of a handshake that failed.
pub(crate) fn failed(error: &io::Error) -> &'static str {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(wrong)) => certificate(wrong),
        Some(Error::NoCertificatesPresented) => "a TLS handshake without a certificate",
        Some(Error::PeerIncompatible(
            PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled,
        )) => "a TLS handshake without TLS 1.3",
        Some(Error::InvalidMessage(_)) => "a connection that speaks no TLS",
        // Such as one that does not trust the gateway's certificate.
        Some(Error::AlertReceived(_)) => "a TLS handshake that the other end refuses",
        Some(_) => "a TLS handshake that fails",
        None => "a TLS handshake that breaks off",
    }
}

fn certificate(wrong: &CertificateError) -> &'static str {
    match wrong {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "a TLS handshake with a certificate that has expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "a TLS handshake with a certificate that does not count yet"
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "a TLS handshake with a certificate of a CA that is not trusted"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "a TLS handshake with a certificate that is for no client"
        }
        _ => "a TLS handshake with a certificate that cannot be used",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rustls::{AlertDescription, InvalidMessage};

    use super::*;

    #[test]
    fn each_kind_of_failure_has_words_of_its_own() {
        let kinds = [
            Error::InvalidCertificate(CertificateError::Expired),
            Error::InvalidCertificate(CertificateError::NotValidYet),
            Error::InvalidCertificate(CertificateError::UnknownIssuer),
            Error::InvalidCertificate(CertificateError::InvalidPurpose),
            Error::InvalidCertificate(CertificateError::BadEncoding),
            Error::NoCertificatesPresented,
            Error::PeerIncompatible(PeerIncompatible::SupportedVersionsExtensionRequired),
            Error::InvalidMessage(InvalidMessage::InvalidContentType),
            Error::AlertReceived(AlertDescription::UnknownCA),
            Error::DecryptError,
        ];
        let number = kinds.len();
        let words = kinds.map(|kind| failed(&io::Error::new(io::ErrorKind::InvalidData, kind)));
        let mut all = BTreeSet::from(words);
        assert_eq!(all.len(), number, "{all:?}");
        assert!(
            all.insert(failed(&io::ErrorKind::UnexpectedEof.into())),
            "{all:?}"
        );
        let plain = io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof");
        assert!(!all.insert(failed(&plain)), "{all:?}");
    }
}
