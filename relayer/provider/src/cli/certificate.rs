use anyhow::bail;

use super::args::CertificateCommand;
use super::output;
use crate::daemon::StartError;
use crate::enrol::{self, Which};
use crate::home::Home;
use crate::store::Store;
use crate::{admin, clock};

pub(super) async fn run(home: &Home, what: CertificateCommand) -> anyhow::Result<()> {
    let store = Store::open(&home.store()).await.map_err(StartError::from)?;
    match what {
        CertificateCommand::List { node_id, out } => {
            let rows = enrol::certificates(store.reader(), node_id.as_ref(), 100_000).await?;
            let head = ["SERIAL", "CLUSTER", "NODE", "EPOCH", "UNTIL", "REVOKED"];
            output::list(&rows, out.output, &head, |r| {
                vec![
                    r.serial.clone(),
                    r.cluster_id.to_string(),
                    r.node_id.to_string(),
                    r.epoch.map_or_else(|| "-".to_owned(), |e| e.to_string()),
                    r.not_after.to_string(),
                    r.revoked_at.map_or_else(|| "-".to_owned(), |t| t.to_string()),
                ]
            })
        }
        CertificateCommand::Revoke {
            serial,
            node_id,
            cluster_id,
        } => {
            let count = match (serial, node_id) {
                (Some(serial), None) => {
                    admin::revoke(&store, Which::Serial(&serial.to_lowercase()), clock::now()).await?
                }
                (None, Some(node)) => {
                    let known = admin::resolve(&store, &node, cluster_id.as_ref()).await?;
                    let which = Which::Node(&known.cluster_id, &known.node_id);
                    admin::revoke(&store, which, clock::now()).await?
                }
                _ => bail!("name either --serial or --node-id"),
            };
            output::line(&format!("{count} certificates are revoked"))
        }
    }
}
