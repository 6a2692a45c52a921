use serde_json::json;

use super::args::CertificateCommand;
use super::output::{self, Output};
use super::who;
use crate::admin::{Admin, Certificates};

pub(super) async fn run(desk: &Admin, what: CertificateCommand, out: Output) -> anyhow::Result<()> {
    match what {
        CertificateCommand::List { node_id } => {
            let rows = desk.certificates(node_id.as_ref(), None, 100_000).await?;
            let head = ["SERIAL", "CLUSTER", "NODE", "EPOCH", "UNTIL", "REVOKED"];
            out.list(&rows, &head, |r| {
                vec![
                    r.serial.clone(),
                    r.cluster_id.to_string(),
                    r.node_id.to_string(),
                    output::or_dash(r.epoch),
                    r.not_after.to_string(),
                    output::or_dash(r.revoked_at),
                ]
            })
        }
        CertificateCommand::Revoke {
            serial,
            node_id,
            cluster_id,
        } => {
            let which = Certificates::either(serial.as_deref(), node_id.as_ref(), cluster_id.as_ref())?;
            let revoked = desk.revoke_certificates(&who(), which).await?;
            out.done(
                &format!("{revoked} certificates revoked"),
                &json!({ "revoked": revoked }),
            )
        }
    }
}
