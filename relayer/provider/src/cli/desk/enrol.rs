//! Tokens, registrations that wait, certificates, credentials.

use hpc_schema::id::{ClusterId, NodeId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::super::args::WhoWaits;
use super::super::who;
use super::remote::Remote;
use super::{Desk, all, done, place};
use crate::admin::credential::{Credential, Made, NewCredential};
use crate::admin::{AdminError, Certificates, JoinWanted, Shown, Waiting, Wanted};
use crate::enrol::{Applicant, CertificateRow, JoinRow, TokenRow};

/// Tokens of one request.
const AT_ONCE: usize = 5000;

#[derive(Deserialize)]
struct Token {
    token: String,
}

#[derive(Deserialize)]
struct RevokedToken {
    registration_is_sent: bool,
}

#[derive(Deserialize)]
struct Rejected {
    public_key: String,
}

#[derive(Deserialize)]
struct Revoked {
    revoked: u64,
}

fn applicant(whom: &WhoWaits) -> Applicant<'_> {
    Applicant {
        node_id: &whom.whose.node_id,
        cluster_id: whom.whose.cluster_id.as_ref(),
        public_key: whom.public_key.as_ref(),
    }
}

/// What is decided on a node that waits, asked of a listener.
async fn decide<T: DeserializeOwned>(remote: &Remote, whom: &WhoWaits, what: &str) -> Result<T, AdminError> {
    let key = whom.public_key.map(|k| k.to_base64());
    let query = [
        (
            "cluster_id",
            whom.whose.cluster_id.as_ref().map(ClusterId::as_str),
        ),
        ("public_key", key.as_deref()),
    ];
    let path = ["registrations", whom.whose.node_id.as_str(), what];
    remote.post(&path, &query, &json!({})).await
}

impl Desk {
    /// A token for each, in their order. A listener makes 5000 at once: of more, all of such a part are made or none.
    pub(in crate::cli) async fn make_tokens(
        &self,
        wanted: &[Wanted],
        expires_seconds: u64,
    ) -> Result<Vec<String>, AdminError> {
        match self {
            Self::Here(admin, _) => admin.make_tokens(&who(), wanted, expires_seconds).await,
            Self::There(remote) => {
                let mut tokens = Vec::with_capacity(wanted.len());
                for part in wanted.chunks(AT_ONCE) {
                    let body = json!({ "nodes": part, "expires_seconds": expires_seconds });
                    let made: Vec<Token> = remote.post(&["node-tokens"], &[], &body).await?;
                    tokens.extend(made.into_iter().map(|t| t.token));
                }
                Ok(tokens)
            }
        }
    }

    pub(in crate::cli) async fn make_join_token(
        &self,
        wanted: JoinWanted,
        expires_seconds: u64,
    ) -> Result<String, AdminError> {
        match self {
            Self::Here(admin, _) => admin.make_join_token(&who(), wanted, expires_seconds).await,
            Self::There(remote) => {
                let terms = &wanted.terms;
                let ranges: Vec<String> = terms.ranges.iter().map(ToString::to_string).collect();
                let body = json!({
                    "cluster_id": wanted.cluster_id, "uses": terms.uses, "ranges": ranges,
                    "approval": terms.approval, "expires_seconds": expires_seconds,
                });
                let made: Token = remote.post(&["join-tokens"], &[], &body).await?;
                Ok(made.token)
            }
        }
    }

    pub(in crate::cli) async fn tokens(&self) -> anyhow::Result<Vec<Shown<TokenRow>>> {
        all(None, async |window| match self {
            Self::Here(admin, _) => admin.tokens(window).await,
            Self::There(remote) => {
                let limit = window.limit().to_string();
                remote.get(&["node-tokens"], &place(&window, &limit)).await
            }
        })
        .await
    }

    pub(in crate::cli) async fn join_tokens(&self) -> anyhow::Result<Vec<Shown<JoinRow>>> {
        all(None, async |window| match self {
            Self::Here(admin, _) => admin.join_tokens(window).await,
            Self::There(remote) => {
                let limit = window.limit().to_string();
                remote.get(&["join-tokens"], &place(&window, &limit)).await
            }
        })
        .await
    }

    pub(in crate::cli) async fn waiting(&self) -> anyhow::Result<Vec<Waiting>> {
        all(None, async |window| match self {
            Self::Here(admin, _) => admin.waiting(window).await,
            Self::There(remote) => {
                let limit = window.limit().to_string();
                remote.get(&["registrations"], &place(&window, &limit)).await
            }
        })
        .await
    }

    pub(in crate::cli) async fn approve(&self, whom: &WhoWaits) -> Result<(), AdminError> {
        match self {
            Self::Here(admin, _) => admin.approve(&who(), applicant(whom)).await,
            Self::There(remote) => done(decide(remote, whom, "approve").await),
        }
    }

    /// Gives the key that was refused.
    pub(in crate::cli) async fn reject(&self, whom: &WhoWaits) -> Result<String, AdminError> {
        match self {
            Self::Here(admin, _) => admin.reject(&who(), applicant(whom)).await,
            Self::There(remote) => {
                let answer: Rejected = decide(remote, whom, "reject").await?;
                Ok(answer.public_key)
            }
        }
    }

    /// Whether a registration with it is in a transaction already.
    pub(in crate::cli) async fn revoke_token(&self, jti: &str) -> Result<bool, AdminError> {
        match self {
            Self::Here(admin, _) => admin.revoke_token(&who(), jti).await,
            Self::There(remote) => {
                let answer: RevokedToken = remote
                    .post(&["node-tokens", jti, "revoke"], &[], &json!({}))
                    .await?;
                Ok(answer.registration_is_sent)
            }
        }
    }

    pub(in crate::cli) async fn certificates(
        &self,
        node: Option<&NodeId>,
    ) -> anyhow::Result<Vec<CertificateRow>> {
        all(None, async |window| match self {
            Self::Here(admin, _) => admin.certificates(node, None, window).await,
            Self::There(remote) => {
                let limit = window.limit().to_string();
                let [after, limit] = place(&window, &limit);
                let query = [("node_id", node.map(NodeId::as_str)), after, limit];
                remote.get(&["certificates"], &query).await
            }
        })
        .await
    }

    /// How many counted until now.
    pub(in crate::cli) async fn revoke_certificates(
        &self,
        which: Certificates<'_>,
    ) -> Result<u64, AdminError> {
        match self {
            Self::Here(admin, _) => admin.revoke_certificates(&who(), which).await,
            Self::There(remote) => {
                let body = match which {
                    Certificates::Fingerprint(fingerprint) => json!({ "fingerprint": fingerprint }),
                    Certificates::Serial(serial) => json!({ "serial": serial }),
                    Certificates::Node(node, cluster) => json!({ "node_id": node, "cluster_id": cluster }),
                };
                let answer: Revoked = remote.post(&["certificates", "revoke"], &[], &body).await?;
                Ok(answer.revoked)
            }
        }
    }

    pub(in crate::cli) async fn credentials(&self) -> anyhow::Result<Vec<Credential>> {
        all(None, async |window| match self {
            Self::Here(admin, _) => admin.credentials(window).await,
            Self::There(remote) => {
                let limit = window.limit().to_string();
                remote.get(&["admin-tokens"], &place(&window, &limit)).await
            }
        })
        .await
    }

    pub(in crate::cli) async fn make_credential(&self, new: &NewCredential) -> Result<Made, AdminError> {
        match self {
            Self::Here(admin, _) => admin.make_credential(&who(), new).await,
            Self::There(remote) => remote.post(&["admin-tokens"], &[], &json!(new)).await,
        }
    }

    pub(in crate::cli) async fn rotate_credential(
        &self,
        id: &str,
        expires_seconds: u64,
        overlap_seconds: u64,
    ) -> Result<Made, AdminError> {
        match self {
            Self::Here(admin, _) => {
                admin
                    .rotate_credential(&who(), id, expires_seconds, overlap_seconds)
                    .await
            }
            Self::There(remote) => {
                let body = json!({ "expires_seconds": expires_seconds, "overlap_seconds": overlap_seconds });
                remote.post(&["admin-tokens", id, "rotate"], &[], &body).await
            }
        }
    }

    pub(in crate::cli) async fn revoke_credential(&self, id: &str) -> Result<(), AdminError> {
        match self {
            Self::Here(admin, _) => admin.revoke_credential(&who(), id).await,
            Self::There(remote) => done(
                remote
                    .post(&["admin-tokens", id, "revoke"], &[], &json!({}))
                    .await,
            ),
        }
    }
}
