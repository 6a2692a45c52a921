mod admitted;
mod refused;

use std::convert::Infallible;

use ed25519_zebra::{SigningKey, VerificationKey};
use serde_json::Value;
use serde_json::value::RawValue;

use super::*;
use crate::heartbeat::parse::tests::{any_heartbeat, healthy};
use crate::heartbeat::{MAX_HEARTBEAT_BYTES, SignHeartbeat, sign_heartbeat};
use crate::key::ZebraVerifier;
use crate::refusal::RefusalKind;
use crate::report::Section;

const NOW: UnixSeconds = UnixSeconds(1_769_781_900);

/// A node on record and the gateway's view of it.
struct Site {
    key: SigningKey,
    public: AgentKey,
    tag: Tag,
    job_ids: JobIds,
    now: UnixSeconds,
    node: NodeId,
    cluster: ClusterId,
    path: String,
}

fn agent_key(seed: u8) -> (SigningKey, AgentKey) {
    let key = SigningKey::from([seed; 32]);
    let public: [u8; 32] = VerificationKey::from(&key).into();
    (key, AgentKey::from_bytes(public).unwrap())
}

impl Site {
    fn of(hb: &Heartbeat) -> Self {
        let (key, public) = agent_key(3);
        let tag = Tag::derive("chain-1", "wasm1contract", &hb.cluster_id, &hb.node_id, 7);
        Self {
            key,
            public,
            tag,
            job_ids: JobIds::Plain,
            now: hb.timestamp.seconds(),
            node: hb.node_id.clone(),
            cluster: hb.cluster_id.clone(),
            path: hb.node_id.to_string(),
        }
    }

    fn sign(&self, hb: &Heartbeat) -> HeartbeatRequest<'static> {
        let what = SignHeartbeat {
            heartbeat: hb,
            nonce: [5; 16],
            tag: &self.tag,
            job_ids: self.job_ids,
            settled_section: None,
        };
        sign_heartbeat(&what, |m| Ok::<_, Infallible>(self.key.sign(m).into()))
            .unwrap()
            .request
    }

    fn verify(&self, request: &HeartbeatRequest<'_>) -> Result<VerifiedHeartbeat, Refusal> {
        let against = Admission {
            path_node_id: &self.path,
            certificate_node_id: &self.node,
            certificate_cluster_id: &self.cluster,
            registered: Some(Registered {
                key: &self.public,
                tag: &self.tag,
                job_ids: self.job_ids,
            }),
            now: self.now,
        };
        verify_heartbeat(request, &against, &ZebraVerifier)
    }

    /// Signs arbitrary payload text around the report of `hb`, as a broken or hostile agent would.
    fn sign_text(&self, text: String, hb: &Heartbeat) -> HeartbeatRequest<'static> {
        let mut request = self.sign(hb);
        request.heartbeat = RawValue::from_string(text).unwrap().into();
        let message = auth_message(
            self.path.as_str(),
            self.now.0,
            &request.auth.nonce,
            &payload_hash(&request.heartbeat),
        );
        let signature: [u8; 64] = self.key.sign(message.as_bytes()).into();
        request.auth.signature = STANDARD.encode(signature);
        request
    }

    /// Signs a changed report beside the payload of `hb`.
    fn sign_report(&self, hb: &Heartbeat, change: impl FnOnce(&mut Report)) -> HeartbeatRequest<'static> {
        let mut request = self.sign(hb);
        let bytes = STANDARD.decode(request.auth.report.as_deref().unwrap()).unwrap();
        let mut report = Report::decode(&bytes).unwrap();
        change(&mut report);
        let signature: [u8; 64] = self.key.sign(&report.message(&self.tag)).into();
        request.auth.report = Some(STANDARD.encode(report.encode()));
        request.auth.report_signature = Some(STANDARD.encode(signature));
        request
    }
}

fn example() -> (Heartbeat, Site) {
    let raw = serde_json::value::to_raw_value(&healthy()).unwrap();
    let hb = Heartbeat::parse(&raw.into()).unwrap();
    let site = Site::of(&hb);
    assert_eq!(site.now, NOW);
    (hb, site)
}

/// The body with this `auth`; the payload's bytes stay.
fn body(request: &HeartbeatRequest<'_>, auth: &Value) -> String {
    format!(
        r#"{{"heartbeat": {}, "auth": {auth}, "acknowledgements": null}}"#,
        request.heartbeat.get()
    )
}

fn refused(site: &Site, request: &HeartbeatRequest<'_>) -> (Code, String, RefusalKind) {
    let r = site.verify(request).unwrap_err();
    assert!(r.message.ends_with(r.code.remedy()), "{r}");
    (r.code, r.field.unwrap_or_default(), r.kind)
}
