//! What gives out a secret, this once.

use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};
use hpc_schema::refusal::Refusal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::call::{Call, Nothing};
use super::which::OfCredential;
use crate::admin::credential::{Made, NewCredential};
use crate::admin::{AdminError, JoinWanted, Wanted};
use crate::enrol::{JoinTerms, Network};

type Answer<T> = Result<T, AdminError>;

/// Tokens of one request.
const MAX_TOKENS: usize = 5000;

/// For whom tokens are made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeTokens {
    /// One token for each; no node may stand twice.
    #[schemars(length(min = 1, max = 5000))]
    nodes: Vec<Wanted>,
    /// How long they count; without it a day, at most 30.
    #[schemars(range(min = 1, max = 2_592_000))]
    expires_seconds: Option<u64>,
}

/// A node's token.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct NodeToken {
    /// Its cluster.
    cluster_id: ClusterId,
    /// The node.
    node_id: NodeId,
    /// The token itself; nobody can show it again.
    token: String,
}

/// What a join token allows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JoinBody {
    /// The nodes' cluster.
    cluster_id: ClusterId,
    /// How many nodes may use it.
    #[schemars(range(min = 1, max = 100_000))]
    uses: u32,
    /// Networks that may use it, such as 10.20.0.0/16; none: any.
    #[serde(default)]
    #[schemars(length(max = 64))]
    ranges: Vec<String>,
    /// Whether each node waits until it is approved.
    #[serde(default)]
    approval: bool,
    /// How long it counts; without it a day, at most 30.
    #[schemars(range(min = 1, max = 2_592_000))]
    expires_seconds: Option<u64>,
}

/// A join token.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct JoinToken {
    /// The token itself; nobody can show it again.
    token: String,
}

/// How a credential is replaced.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rotate {
    /// How long the new one counts, up to 366 days.
    #[schemars(range(min = 1, max = 31_622_400))]
    expires_seconds: u64,
    /// How long the old one counts beside it; without it an hour, at most a day.
    #[schemars(range(max = 86_400))]
    overlap_seconds: Option<u64>,
}

const DAY: u64 = 24 * 3600;

fn invalid(field: &str, what: impl std::fmt::Display) -> AdminError {
    AdminError::Refused(Refusal::field(Code::InvalidField, field, what))
}

pub(super) async fn tokens(call: Call<Nothing, Nothing, NodeTokens>) -> Answer<Vec<NodeToken>> {
    let NodeTokens {
        nodes,
        expires_seconds,
    } = call.body;
    if !(1..=MAX_TOKENS).contains(&nodes.len()) {
        return Err(invalid(
            "nodes",
            format!("names {}, must be 1 to {MAX_TOKENS}", nodes.len()),
        ));
    }
    let mut names: Vec<_> = nodes.iter().map(|n| (&n.cluster_id, &n.node_id)).collect();
    names.sort();
    if let Some([(_, twice), _]) = names.windows(2).find_map(|w| match w {
        [a, b] if a == b => Some([a, b]),
        _ => None,
    }) {
        return Err(invalid("nodes", format!("{twice} stands twice")));
    }
    let made = call
        .desk
        .make_tokens(&call.by, &nodes, expires_seconds.unwrap_or(DAY))
        .await?;
    Ok(nodes
        .into_iter()
        .zip(made)
        .map(|(node, token)| NodeToken {
            cluster_id: node.cluster_id,
            node_id: node.node_id,
            token,
        })
        .collect())
}

pub(super) async fn join_token(call: Call<Nothing, Nothing, JoinBody>) -> Answer<JoinToken> {
    let JoinBody {
        cluster_id,
        uses,
        ranges,
        approval,
        expires_seconds,
    } = call.body;
    if ranges.len() > 64 {
        return Err(invalid("ranges", "has more than 64 networks"));
    }
    let ranges = ranges
        .iter()
        .map(|r| r.parse::<Network>().map_err(|e| invalid("ranges", e)))
        .collect::<Result<_, _>>()?;
    let terms = JoinTerms {
        uses,
        ranges,
        approval,
    };
    let wanted = JoinWanted { cluster_id, terms };
    let token = call
        .desk
        .make_join_token(&call.by, wanted, expires_seconds.unwrap_or(DAY))
        .await?;
    Ok(JoinToken { token })
}

pub(super) async fn credential(call: Call<Nothing, Nothing, NewCredential>) -> Answer<Made> {
    call.desk.make_credential(&call.by, &call.body).await
}

pub(super) async fn rotate(call: Call<OfCredential, Nothing, Rotate>) -> Answer<Made> {
    let Rotate {
        expires_seconds,
        overlap_seconds,
    } = call.body;
    let overlap = overlap_seconds.unwrap_or(3600);
    if overlap > DAY {
        return Err(invalid("overlap_seconds", "must be at most 86400"));
    }
    let id = &call.path.id;
    let made = call
        .desk
        .rotate_credential(&call.by, id, expires_seconds, overlap)
        .await?;
    call.api.credentials.forget();
    Ok(made)
}
