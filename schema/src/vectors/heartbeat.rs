use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{CHAIN_ID, CONTRACT, Case, NOW, Signer, VectorError, result_of};
use crate::heartbeat::{
    Admission, Heartbeat, HeartbeatRequest, Registered, SignHeartbeat, VerifiedHeartbeat, auth_message,
    payload_hash, sign_heartbeat, verify_heartbeat,
};
use crate::id::{ClusterId, NodeId};
use crate::key::{AgentKey, ZebraVerifier};
use crate::refusal::Refusal;
use crate::registry::JobIds;
use crate::report::Tag;
use crate::time::UnixSeconds;

const EPOCH: u64 = 7;
const NONCE: [u8; 16] = [0x11; 16];
const HEALTHY: &str = include_str!("../../fixtures/healthy.json");

/// What the gateway knows while it judges a body.
struct Gateway {
    cluster: ClusterId,
    node: NodeId,
    key: AgentKey,
    tag: Tag,
    job_ids: JobIds,
}

impl Gateway {
    fn judge(&self, body: &str, now: u64) -> Result<VerifiedHeartbeat, Refusal> {
        let against = Admission {
            path_node_id: self.node.as_str(),
            certificate_node_id: &self.node,
            certificate_cluster_id: &self.cluster,
            registered: Some(Registered {
                key: &self.key,
                tag: &self.tag,
                job_ids: self.job_ids,
            }),
            now: UnixSeconds(now),
        };
        verify_heartbeat(
            &HeartbeatRequest::parse(body.as_bytes())?,
            &against,
            &ZebraVerifier,
        )
    }

    fn case(&self, name: &str, body: &str, now: u64) -> Value {
        let judged = self.judge(body, now);
        let mut case = json!({"name": name, "body": body, "now": now, "result": result_of(&judged)});
        if let (Some(map), Ok(v)) = (case.as_object_mut(), &judged) {
            map.insert("derived".into(), self.derived(v, body));
        }
        case
    }

    /// Every intermediate value, for whoever writes an agent and looks for the step that differs.
    fn derived(&self, v: &VerifiedHeartbeat, body: &str) -> Value {
        let nonce = STANDARD.encode(v.nonce);
        let seconds = v.heartbeat.timestamp.seconds().0;
        let hash = HeartbeatRequest::parse(body.as_bytes()).map_or([0; 32], |r| payload_hash(&r.heartbeat));
        json!({
            "payload_sha256": hex::encode(v.payload_hash),
            "auth_message": auth_message(self.node.as_str(), seconds, &nonce, &hash),
            "report": hex::encode(v.report.encode()),
            "report_message": hex::encode(v.report.message(&self.tag)),
            "section": hex::encode(&v.section),
        })
    }
}

fn body(request: &HeartbeatRequest<'_>) -> Result<String, VectorError> {
    serde_json::to_string(request).map_err(VectorError::input)
}

pub(super) fn generate() -> Result<Value, VectorError> {
    let (agent, other) = (Signer::from_seed(1)?, Signer::from_seed(4)?);
    let example = HeartbeatRequest::parse(HEALTHY.as_bytes()).map_err(VectorError::input)?;
    let heartbeat = Heartbeat::parse(&example.heartbeat).map_err(VectorError::input)?;
    let tag = Tag::derive(
        CHAIN_ID,
        CONTRACT,
        &heartbeat.cluster_id,
        &heartbeat.node_id,
        EPOCH,
    );
    let gateway = Gateway {
        cluster: heartbeat.cluster_id.clone(),
        node: heartbeat.node_id.clone(),
        key: agent.public,
        tag,
        job_ids: JobIds::Plain,
    };
    let sign =
        |signer: &Signer, tag: &Tag, job_ids: JobIds| -> Result<HeartbeatRequest<'static>, VectorError> {
            let what = SignHeartbeat {
                heartbeat: &heartbeat,
                nonce: NONCE,
                tag,
                job_ids,
                settled_section: None,
            };
            let signed = sign_heartbeat(&what, |m| Ok::<_, VectorError>(signer.sign(m)))
                .map_err(VectorError::input)?;
            Ok(signed.request)
        };
    let good = sign(&agent, &tag, JobIds::Plain)?;
    let text = body(&good)?;
    let next_epoch = Tag::derive(CHAIN_ID, CONTRACT, &gateway.cluster, &gateway.node, EPOCH + 1);

    // A payload that no agent of ours would write, signed correctly.
    let spaced = example.heartbeat.get().to_owned();
    let resigned = |payload: String| -> Result<HeartbeatRequest<'static>, VectorError> {
        let mut request = good.clone();
        request.heartbeat = RawValue::from_string(payload).map_err(VectorError::input)?.into();
        let hash = payload_hash(&request.heartbeat);
        let message = auth_message(gateway.node.as_str(), NOW, &request.auth.nonce, &hash);
        request.auth.signature = STANDARD.encode(agent.sign(message.as_bytes()));
        Ok(request)
    };
    let mut without_report = good.clone();
    without_report.auth.report = None;
    let mut short_nonce = good.clone();
    short_nonce.auth.nonce = "a1b2c3d4e5f6g7h8".into();
    let mut late = good.clone();
    late.auth.timestamp = late.auth.timestamp.map(|t| t + 1);
    let mut section = good.clone();
    section.auth.section = None;
    let one_core_more = spaced.replace(r#""cpu_cores_available": 32"#, r#""cpu_cores_available": 65"#);
    let sequence_zero = spaced.replace("145823", "0");
    let cases = [
        gateway.case("accepted", &text, NOW),
        gateway.case("accepted without section", &body(&section)?, NOW),
        gateway.case(
            "payload written again with other white space",
            &text.replacen(':', ": ", 2),
            NOW,
        ),
        gateway.case("report of another payload", &body(&resigned(spaced)?)?, NOW),
        gateway.case(
            "more cores available than there are",
            &body(&resigned(one_core_more)?)?,
            NOW,
        ),
        gateway.case("sequence 0", &body(&resigned(sequence_zero)?)?, NOW),
        gateway.case("another key", &body(&sign(&other, &tag, JobIds::Plain)?)?, NOW),
        gateway.case(
            "report of another epoch",
            &body(&sign(&agent, &next_epoch, JobIds::Plain)?)?,
            NOW,
        ),
        gateway.case(
            "job ids hashed where plain is agreed",
            &body(&sign(&agent, &tag, JobIds::Hashed)?)?,
            NOW,
        ),
        gateway.case("no report", &body(&without_report)?, NOW),
        gateway.case("nonce of 12 bytes", &body(&short_nonce)?, NOW),
        gateway.case("auth.timestamp off by a second", &body(&late)?, NOW),
        gateway.case("clock six minutes behind", &text, NOW + 360),
        gateway.case("clock two minutes ahead", &text, NOW - 120),
        gateway.case("cut off", text.get(..text.len() / 2).unwrap_or_default(), NOW),
    ];
    Ok(json!({
        "description": "Bodies of POST …/heartbeat (as strings: their bytes count) and the gateway's answer.",
        "context": {
            "agent": agent.json(), "public_key": agent.public.to_base64(),
            "chain_id": CHAIN_ID, "contract": CONTRACT, "epoch": EPOCH,
            "cluster_id": gateway.cluster, "node_id": gateway.node, "job_ids": gateway.job_ids,
            "tag": hex::encode(tag.as_bytes()),
        },
        "cases": cases,
    }))
}

pub(super) fn check(context: &Case, case: &Case) -> Result<(), VectorError> {
    let (cluster, node): (ClusterId, NodeId) = (context.parsed("cluster_id")?, context.parsed("node_id")?);
    let (chain_id, contract) = (context.text("chain_id")?, context.text("contract")?);
    let tag = Tag::derive(chain_id, contract, &cluster, &node, context.number("epoch")?);
    let job_ids = serde_json::from_value(context.value.get("job_ids").cloned().unwrap_or_default())
        .map_err(|_| context.missing("job_ids"))?;
    let gateway = Gateway {
        cluster,
        node,
        key: context.parsed("public_key")?,
        tag,
        job_ids,
    };
    let body = case.text("body")?;
    let judged = gateway.judge(body, case.number("now")?);
    if let Ok(v) = &judged {
        case.same("derived", &gateway.derived(v, body))?;
    }
    case.same("result", &result_of(&judged))
}
