use rcgen::{
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData as _, SubjectPublicKeyInfo,
};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ED25519, Oid};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

/// Longest request (PEM) that is looked at.
const MAX_CSR_BYTES: usize = 8192;

/// A certificate request of which only the key counts: its signature has been verified, its subject
/// and extensions are thrown away.
#[derive(Debug, Clone)]
pub struct NodeCsr {
    der: Vec<u8>,
    pub(super) key: SubjectPublicKeyInfo,
}

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CsrError {
    /// Not one PEM block `CERTIFICATE REQUEST` of bounded size.
    #[error("must be one PEM block CERTIFICATE REQUEST of at most 8192 bytes")]
    Pem,
    /// Not a PKCS#10 request (RFC 2986).
    #[error("is no PKCS#10 request in DER")]
    Request,
    /// A key or a signature of a kind that is not taken.
    #[error(
        "must have an ECDSA key on P-256 or P-384 and be signed with SHA-256 or SHA-384, or have an Ed25519 key"
    )]
    Kind,
    /// Not signed by the key that it is for.
    #[error("is not signed by its own key")]
    Signature,
}

impl NodeCsr {
    /// Reads a request and verifies that its sender holds its key.
    ///
    /// # Errors
    /// [`CsrError`].
    pub fn from_pem(pem: &str) -> Result<Self, CsrError> {
        if pem.len() > MAX_CSR_BYTES {
            return Err(CsrError::Pem);
        }
        let mut blocks = Pem::iter_from_buffer(pem.as_bytes());
        let block = blocks.next().and_then(Result::ok).ok_or(CsrError::Pem)?;
        if blocks.next().is_some() || block.label != "CERTIFICATE REQUEST" {
            return Err(CsrError::Pem);
        }
        let key = own_key(&block.contents)?;
        Ok(Self {
            der: block.contents,
            key,
        })
    }

    /// The request as it came, DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }
}

/// The key that a request is for and is signed by.
fn own_key(der: &[u8]) -> Result<SubjectPublicKeyInfo, CsrError> {
    let (rest, request) = X509CertificationRequest::from_der(der).map_err(|_| CsrError::Request)?;
    if !rest.is_empty() {
        return Err(CsrError::Request);
    }
    let asked = &request.certification_request_info.subject_pki;
    // By what the request says of its key: a P-384 key may well have signed with SHA-256.
    let key = SubjectPublicKeyInfo::from_der(asked.raw).map_err(|_| CsrError::Kind)?;
    // A certificate repeats the key as the request has it, or there is none.
    if !is_taken(&key, &request.signature_algorithm.algorithm) || key.subject_public_key_info() != asked.raw {
        return Err(CsrError::Kind);
    }
    request.verify_signature().map_err(|_| CsrError::Signature)?;
    Ok(key)
}

/// Whether requests for such a key may be signed so.
fn is_taken(key: &SubjectPublicKeyInfo, signed: &Oid<'_>) -> bool {
    let kind = key.algorithm();
    if *kind == PKCS_ED25519 {
        return *signed == OID_SIG_ED25519;
    }
    // The library names each curve after the hash that it signs with on it.
    (*kind == PKCS_ECDSA_P256_SHA256 || *kind == PKCS_ECDSA_P384_SHA384)
        && [OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384].contains(signed)
}

#[cfg(test)]
mod tests {
    use hpc_schema::time::UnixSeconds;
    use rcgen::{CertificateParams, KeyPair, SignatureAlgorithm};

    use super::*;
    use crate::identity::ca::first_certificate;
    use crate::identity::{Ca, NodeSubject};

    // openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:CURVE -HASH -nodes -subj /CN=x
    const P384_SHA256: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIIBBDCBiwIBADAMMQowCAYDVQQDDAF4MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE
9d2DDvVsyu48XllR3IgI2xuAkmzmUg96Wa4Kq/QozZmUTXEAV4CLr8kiw3miFvE0
VYLoTGjALy8g2mFKUwEUwPMlYWK48eyQzEbe+z0mgTc02bbMkg1mVXydk72SPIZQ
oAAwCgYIKoZIzj0EAwIDaAAwZQIxAP4GZsUL/a8TSHnepK7E5C7cbQWXuVd0Zc1j
kgMDxiFu+1CMIUa2dHr7gTr3vlrEpAIwDChzEsfEx5+iVv+3QzeJVZ4qJXTE8OPz
L6zKMlyDZ0zKfQEfYTSlhkP9g6FZ7Zj/
-----END CERTIFICATE REQUEST-----
";
    const P384_SHA512: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIIBBDCBiwIBADAMMQowCAYDVQQDDAF4MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE
KWy+DH7gL3U9KFBlN4HEFcuNdGDsV77HtYEkqiKfdZh7RMS4YOcw6l17WexVDMCd
u+qc1El2sgAZzm94M4OIwrZ7hytnwhUZZ8EIxEAfqgtXDiUjk91DMa5V8asNX2KW
oAAwCgYIKoZIzj0EAwQDaAAwZQIxALkfZbZHd5savA00azvUQ9RtH6Br9meSPdfK
JEns4q40LaXBZy34o8ejLHFUQKErawIwCjy6JP1fnIqc5VQYsfNJ+5V8fxeBdEnH
OTJY4e6ohw71Qy+681sEibLJqCAPlfnc
-----END CERTIFICATE REQUEST-----
";
    const P256_SHA384: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIHGMG4CAQAwDDEKMAgGA1UEAwwBeDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA
BI7PSGonVugTB5hjtYPI2qSzcGbCU6SIZ/l64seQl3YOxFDV0HQdvF3abwVf2ye5
+BeoHPYNpURW63Ru4eLXBtCgADAKBggqhkjOPQQDAwNIADBFAiAY0/LM4vHlBc1U
7iqAhgfcLDYKgPwfedSJYfdIrYsTFAIhAOAaiVwMB6DnKsVwg04ZxUSb59sowABv
GUcrxrj24Ovf
-----END CERTIFICATE REQUEST-----
";
    // openssl req -new -newkey rsa:2048 -nodes -subj /CN=x
    const RSA: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIICUTCCATkCAQAwDDEKMAgGA1UEAwwBeDCCASIwDQYJKoZIhvcNAQEBBQADggEP
ADCCAQoCggEBAMxtIPpYzMsn0lWn5a9dTJyEinDH5NI+rdSdVJUvYWkfLNxTEYMj
XMLBrOTII9u8UefvdpGfal64/VMj28Q3Et9hdYgVZsTPKe1vSg6ZMgY3tAgkq8nm
H/qcitphP57fsFSygrEy+m2cXu8b0ewr7HU8BNmKXILI9LlKkt5gpZfaY/gd0yyX
lq2kVbe3GoYTTESsyilubfL5mNKxVpXQQgcLS6pWSl6iQhJPo+Yqavi0MqbvIp+O
+CJrVgRnX5HDRX1sBT+N0DGhJTw8E9UCKb/mbVxZPSFoItJcOKRounZzcaJfizSq
8vNQowsFeSf67izznPcx6J3/HsgeOj3/xV8CAwEAAaAAMA0GCSqGSIb3DQEBCwUA
A4IBAQCfJ8I9S7PXsnzWgdi21S1t0LdRjHekI30cJOA2RY6e3nlYCk1sdqyYM+zr
jyvej2bZe9D7+LuhIg8X5Nhg7Sny7oytT3NF0gTeoFXxDWnAshFrBjczAAr0CdjP
oKoFiJSonlZuT6T0xO4J/UUyF4emuRCNzZ3/GEUK+mm+9XLvN/miYEFRY5gjZarp
sw4HZFdnhLjNagSpAxVSIVxDez9jHRyxkS6dQgsp3za29gCTHUdI6mVDJEG3tRyB
i8If2qB3Lc/V3vvbv39Ol7s7t813IDnYy0/chpey3319mSP9wLEK3FT/lR/IAyqZ
mFExRGrA1cq2hw6545EnUaZa5DY1
-----END CERTIFICATE REQUEST-----
";

    fn made_by(algorithm: &'static SignatureAlgorithm) -> String {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap();
        request.pem().unwrap()
    }

    fn written(der: &[u8]) -> String {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
    }

    #[test]
    fn a_certificate_has_the_key_of_its_request_whatever_hash_that_was_signed_with() {
        let now = UnixSeconds(1_800_000_000);
        let (ca, _) = Ca::create(now, [1; 16]).unwrap();
        let (cluster, node) = ("hpc-cluster-1".parse().unwrap(), "node-0001".parse().unwrap());
        let subject = NodeSubject {
            cluster: &cluster,
            node: &node,
            epoch: 7,
        };
        for pem in [
            P384_SHA256.to_owned(),
            P256_SHA384.to_owned(),
            made_by(&PKCS_ECDSA_P256_SHA256),
            made_by(&PKCS_ECDSA_P384_SHA384),
            made_by(&PKCS_ED25519),
        ] {
            let csr = NodeCsr::from_pem(&pem).unwrap();
            let (_, request) = X509CertificationRequest::from_der(csr.der()).unwrap();
            let issued = ca.issue_node(&csr, &subject, now, 3600, [2; 16]).unwrap();
            let der = first_certificate(&issued.pem).unwrap();
            let (_, certificate) = x509_parser::parse_x509_certificate(&der).unwrap();
            assert_eq!(
                certificate.public_key().raw,
                request.certification_request_info.subject_pki.raw,
                "{pem}"
            );
        }
    }

    #[test]
    fn what_is_not_taken_is_refused_with_what_is() {
        for kind in [P384_SHA512, RSA] {
            let refused = NodeCsr::from_pem(kind).unwrap_err();
            assert_eq!(refused, CsrError::Kind, "{kind}");
            for word in ["P-256", "P-384", "Ed25519", "SHA-256", "SHA-384"] {
                assert!(refused.to_string().contains(word), "{refused}");
            }
        }
        let der = NodeCsr::from_pem(P384_SHA256).unwrap().der().to_vec();
        let longer = [&der[..], &[0]].concat();
        let refused = NodeCsr::from_pem(&written(&longer)).unwrap_err();
        assert_eq!(refused, CsrError::Request);
        let mut broken = der;
        *broken.last_mut().unwrap() ^= 1;
        let refused = NodeCsr::from_pem(&written(&broken)).unwrap_err();
        assert_eq!(refused, CsrError::Signature);
        // The algorithm of another kind of key.
        let mut ed25519 = NodeCsr::from_pem(&made_by(&PKCS_ED25519)).unwrap().der().to_vec();
        let oid = [0x06, 0x03, 0x2b, 0x65, 0x70];
        let last = ed25519.windows(5).rposition(|w| w == oid).unwrap();
        ed25519[last + 4] = 0x71;
        let refused = NodeCsr::from_pem(&written(&ed25519)).unwrap_err();
        assert_eq!(refused, CsrError::Kind);
    }
}
