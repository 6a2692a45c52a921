//! The table of nodes.

use crate::admin::NodeRow;

pub(super) const HEAD: [&str; 9] = [
    "CLUSTER",
    "NODE",
    "STATE",
    "RECEIVED",
    "AT",
    "ON CHAIN",
    "LAG",
    "LAST REFUSAL",
    "REMEDY",
];

pub(super) fn cells(r: &NodeRow) -> Vec<String> {
    let state = match &r.disabled {
        Some(_) => format!("{} (disabled)", r.state),
        None => r.state.to_string(),
    };
    let refusal = r.last_refusal.as_ref();
    vec![
        r.cluster_id.to_string(),
        r.node_id.to_string(),
        state,
        r.last_received.to_string(),
        r.received_at.clone().unwrap_or_else(|| "-".to_owned()),
        r.last_on_chain.to_string(),
        r.lag.to_string(),
        refusal.map_or_else(|| "-".to_owned(), |x| format!("{} at {}", x.code, x.at)),
        refusal.map_or_else(String::new, |x| x.remedy.to_string()),
    ]
}
