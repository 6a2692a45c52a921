//! The gateway's CA as an intermediate of somebody else's.

use hpc_schema::gateway::{CertificateResponse, certificate_path};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use serde_json::json;
use virtengine_provider::clock;
use virtengine_provider::identity::Ca;

use crate::agent::{Agent, client, csr, post};
use crate::site::Site;

fn authority(name: &str, is_ca: IsCa) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = is_ca;
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intermediate_of_an_outside_ca_vouches_for_the_gateway_and_for_nodes() {
    let mut site = Site::prepare().await;
    let key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let unlimited = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = CertifiedIssuer::self_signed(authority("Site root", unlimited), key()).unwrap();
    let inner_key = key();
    let leaves_only = IsCa::Ca(BasicConstraints::Constrained(0));
    let inner = authority("Site HPC intermediate", leaves_only)
        .signed_by(&inner_key, &root)
        .unwrap();
    let ca = Ca::from_pem(&inner.pem(), &inner_key.serialize_pem()).unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let (server, server_key) = ca.issue_server(&names, clock::now(), [3; 16]).unwrap();
    for (file, text) in [
        ("ca/ca.crt", inner.pem()),
        ("ca/ca.key", inner_key.serialize_pem()),
        ("gateway/server.crt", server.pem),
        ("gateway/server.key", server_key.to_string()),
    ] {
        std::fs::write(site.home().join(file), text).unwrap();
    }
    site.start_daemon().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    assert!(agent.beat(&agent.client(&site), &site, 1).await.accepted);
    // Whoever trusts the root alone finds the way: the gateway shows the intermediate.
    let by_root = client(&root.pem(), Some((&agent.certificate, &agent.tls)));
    assert!(agent.beat(&by_root, &site, 2).await.accepted);
    let renewed: CertificateResponse = post(
        &by_root,
        &site,
        &certificate_path(&agent.node.parse().unwrap()),
        &json!({ "csr": csr(&agent.tls) }),
    )
    .await
    .json()
    .await
    .unwrap();
    let again = client(&root.pem(), Some((&renewed.certificate, &agent.tls)));
    assert!(agent.beat(&again, &site, 3).await.accepted);
}
