use super::REGISTRATION_DOMAIN;
use super::identity::{FieldError, NodeIdentity, plain};

/// RFC 8785 canonical JSON of `{"chain_id", "contract", "domain", "node_identity"}`: keys sorted, no
/// white space. Every string is plain ASCII by [`NodeIdentity::check`], so no escape ever occurs and
/// no JSON library is needed to build it.
///
/// # Errors
/// Names the field whose text is not plain.
pub fn canonical_registration(
    chain_id: &str,
    contract: &str,
    identity: &NodeIdentity,
) -> Result<String, FieldError> {
    plain("chain_id", chain_id, 1, 64)?;
    plain("contract", contract, 1, 128)?;
    identity.check()?;
    let NodeIdentity {
        node_id,
        cluster_id,
        provider_address,
        agent_pubkey,
        hostname,
        hardware_fingerprint,
        registration_nonce,
        registration_timestamp,
    } = identity;
    let agent_pubkey = agent_pubkey.to_base64();
    let fields = [
        ("agent_pubkey", Some(agent_pubkey.as_str())),
        ("cluster_id", Some(cluster_id.as_str())),
        ("hardware_fingerprint", hardware_fingerprint.as_deref()),
        ("hostname", hostname.as_deref()),
        ("node_id", Some(node_id.as_str())),
        ("provider_address", Some(provider_address.as_str())),
        ("registration_nonce", Some(registration_nonce.as_str())),
        ("registration_timestamp", Some(registration_timestamp.as_str())),
    ];
    let mut out = String::with_capacity(768);
    out.push_str(&format!(
        r#"{{"chain_id":"{chain_id}","contract":"{contract}","domain":"{REGISTRATION_DOMAIN}","node_identity":{{"#
    ));
    let mut first = true;
    for (key, value) in fields {
        let Some(value) = value else { continue };
        if !first {
            out.push(',');
        }
        first = false;
        out.push_str(&format!(r#""{key}":"{value}""#));
    }
    out.push_str("}}");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> NodeIdentity {
        serde_json::from_value(serde_json::json!({
            "node_id": "node-hpc1-compute-042",
            "cluster_id": "hpc-cluster-1",
            "provider_address": "wasm1qg5ega6dykkxc307y25pecuufrjkxkaggkkxh7nad0vhyhtuhw3sqaa3c5",
            "agent_pubkey": "mDNBfrIXvbcwrSQy3ZUwZ0Gk8JYJhS7pF6Qm0nK8l0w=",
            "hostname": "compute-042",
            "registration_nonce": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
            "registration_timestamp": "2026-01-30T14:05:00Z"
        }))
        .unwrap()
    }

    #[test]
    fn equals_serde_json_with_sorted_keys() {
        let id = identity();
        let ours = canonical_registration("chain-1", "wasm1contract", &id).unwrap();
        // serde_json's map sorts keys, and these strings need no escape.
        let theirs = serde_json::to_string(&serde_json::json!({
            "node_identity": serde_json::to_value(&id).unwrap(),
            "domain": REGISTRATION_DOMAIN,
            "chain_id": "chain-1",
            "contract": "wasm1contract",
        }))
        .unwrap();
        assert_eq!(ours, theirs);
        assert!(!ours.contains("hardware_fingerprint"));
    }

    #[test]
    fn text_that_would_need_an_escape_is_refused_by_name() {
        for bad in ["a\"b", "a\\b", "a<b", "a&b", "ä", "a\nb", ""] {
            let mut id = identity();
            id.hostname = Some(bad.into());
            let err = canonical_registration("chain-1", "wasm1contract", &id).unwrap_err();
            assert_eq!(err.field, "node_identity.hostname", "{bad:?}");
        }
    }
}
