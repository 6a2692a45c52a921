use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use virtengine_node_agent::clock::Clock;

/// A CA that issues the gateway's and the nodes' certificates.
pub struct Authority {
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "test CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Self {
            ca: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap(),
        }
    }

    pub fn pem(&self) -> String {
        self.ca.pem()
    }

    pub fn fingerprint(&self) -> String {
        hex::encode(Sha256::digest(self.ca.der()))
    }

    /// TLS of the gateway: sends its CA, asks for a client certificate, of another CA too, does without one.
    pub fn server(&self, another: &Self, clock: &Clock) -> Arc<rustls::ServerConfig> {
        self.server_with(&[self.ca.der().clone()], another, clock)
    }

    /// The same, without its CA: a client must have it.
    pub fn bare_server(&self, another: &Self, clock: &Clock) -> Arc<rustls::ServerConfig> {
        self.server_with(&[], another, clock)
    }

    fn server_with(
        &self,
        above: &[CertificateDer<'static>],
        another: &Self,
        clock: &Clock,
    ) -> Arc<rustls::ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.ca).unwrap();
        let mut chain = vec![certificate.der().clone()];
        chain.extend_from_slice(above);
        let provider = virtengine_node_agent::uplink::provider();
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.der().clone()).unwrap();
        roots.add(another.ca.der().clone()).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .unwrap();
        let config = rustls::ServerConfig::builder_with_details(provider, Arc::new(clock.clone()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(
                chain,
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .unwrap();
        Arc::new(config)
    }

    /// A node's certificate for the key of a request.
    pub fn issue(&self, csr: &str, uri: &str, life: Duration, clock: &Clock) -> String {
        self.issue_for(csr, uri, 7, life, clock)
    }

    /// The same for a registration epoch.
    pub fn issue_for(&self, csr: &str, uri: &str, epoch: u64, life: Duration, clock: &Clock) -> String {
        let mut request = CertificateSigningRequestParams::from_pem(csr).unwrap();
        // Serial number of the subject, OID 2.5.4.5.
        let serial = DnType::CustomDnType(vec![2, 5, 4, 5]);
        request.params.distinguished_name.push(serial, epoch.to_string());
        request.params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        request.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let now = OffsetDateTime::from_unix_timestamp(clock.seconds().try_into().unwrap()).unwrap();
        request.params.not_before = now - time::Duration::seconds(1);
        request.params.not_after = now + life;
        request.signed_by(&self.ca).unwrap().pem()
    }
}
