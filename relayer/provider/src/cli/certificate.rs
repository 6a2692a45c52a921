use serde_json::json;

use super::args::CertificateCommand;
use super::desk::Desk;
use super::output::{self, Output};
use crate::admin::Certificates;

pub(super) async fn run(desk: &Desk, what: CertificateCommand, out: Output) -> anyhow::Result<()> {
    match what {
        CertificateCommand::List { node_id } => {
            let rows = desk.certificates(node_id.as_ref()).await?;
            let head = [
                "SERIAL", "CLUSTER", "NODE", "EPOCH", "UNTIL", "REVOKED", "ISSUER", "SHA-256",
            ];
            out.list(&rows, &head, |r| {
                vec![
                    r.serial.clone(),
                    r.cluster_id.to_string(),
                    r.node_id.to_string(),
                    output::or_dash(r.epoch),
                    r.not_after.to_string(),
                    output::or_dash(r.revoked_at),
                    r.issuer.clone(),
                    r.fingerprint.clone(),
                ]
            })
        }
        CertificateCommand::Revoke {
            fingerprint,
            serial,
            node_id,
            cluster_id,
        } => {
            let which = Certificates::one_of(
                fingerprint.as_deref(),
                serial.as_deref(),
                node_id.as_ref(),
                cluster_id.as_ref(),
            )?;
            let revoked = desk.revoke_certificates(which).await?;
            let unseen = if node_id.is_some() {
                ", and those that an outside CA has issued to the node until now; it gets a new one with its agent key"
            } else {
                ""
            };
            out.done(
                &format!("{revoked} certificates revoked{unseen}"),
                &json!({ "revoked": revoked }),
            )
        }
    }
}
