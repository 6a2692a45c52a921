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
    // The count begins anew with each registration: there is nothing to compare before the first one is there, and here.
    let lag = match (r.last_received, r.last_on_chain) {
        (0, _) => "-".to_owned(),
        (_, 0) => "pending".to_owned(),
        _ => r.lag.to_string(),
    };
    let refusal = r.last_refusal.as_ref();
    vec![
        r.cluster_id.to_string(),
        r.node_id.to_string(),
        state,
        r.last_received.to_string(),
        r.received_at.clone().unwrap_or_else(|| "-".to_owned()),
        r.last_on_chain.to_string(),
        lag,
        refusal.map_or_else(|| "-".to_owned(), |x| format!("{} at {}", x.code, x.at)),
        refusal.map_or_else(String::new, |x| x.remedy.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use hpc_schema::node::NodeState;

    use super::*;

    #[test]
    fn lag_is_a_number_once_a_heartbeat_of_the_registration_is_on_chain() {
        let lag = |last_received: u32, last_on_chain| {
            let row = NodeRow {
                cluster_id: "hpc-cluster-1".parse().unwrap(),
                node_id: "node-a".parse().unwrap(),
                state: NodeState::Active,
                disabled: None,
                epoch: 2,
                last_received,
                received_at: None,
                last_on_chain,
                lag: last_received.saturating_sub(last_on_chain),
                last_heartbeat_on_chain: None,
                address: None,
                probe_port: None,
                probe_address: None,
                last_refusal: None,
            };
            cells(&row).swap_remove(6)
        };
        assert_eq!(HEAD[6], "LAG");
        assert_eq!(lag(0, 0), "-");
        assert_eq!(lag(0, 9), "-", "the store is new, and the chain knows more");
        assert_eq!(lag(3, 0), "pending");
        assert_eq!(lag(3, 3), "0");
        assert_eq!(lag(9, 3), "6");
    }
}
