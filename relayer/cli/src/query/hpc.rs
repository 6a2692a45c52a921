//! `query hpc`.

use hpc_chain::query::{At, QueryError};

use super::page::pages;
use super::proof;
use crate::args::{AnchorsArgs, HpcQuery};
use crate::context::{Context, Session};
use crate::error::{Exit, Failure};
use crate::output::{AnchorAt, ClusterAt, NodeAt};

pub(super) async fn run(context: &Context, session: &Session, query: &HpcQuery) -> Result<(), Failure> {
    let registry = session.registry()?;
    let printer = context.printer;
    match query {
        HpcQuery::Params => printer.print(&registry.params().await?.value),
        HpcQuery::Config => printer.print(&registry.config().await?.value),
        HpcQuery::Cluster { cluster_id } => printer.print(&ClusterAt::from(
            registry.cluster(cluster_id.clone()).await?.value,
        )),
        HpcQuery::Clusters { owner, page } => {
            let ask = async |cursor, limit| value(registry.clusters(owner.clone(), cursor, limit).await);
            printer.print(&pages(page, ask).await?)
        }
        HpcQuery::Node { node_id, cluster_id } => {
            let answer = registry.node(cluster_id.clone(), node_id.clone()).await?;
            printer.print(&NodeAt::from(answer.value))
        }
        HpcQuery::Nodes(args) => {
            let ask = async |cursor, limit| value(registry.nodes(args.filter(), cursor, limit).await);
            printer.print(&pages(&args.page, ask).await?)
        }
        HpcQuery::Aggregate { cluster_id } => {
            printer.print(&registry.aggregate(cluster_id.clone()).await?.value)
        }
        HpcQuery::JobsAtRisk { cluster_id, page } => {
            let ask =
                async |cursor, limit| value(registry.jobs_at_risk(cluster_id.clone(), cursor, limit).await);
            printer.print(&pages(page, ask).await?)
        }
        HpcQuery::Proof { file } => proof::run(printer, &registry, file).await,
        HpcQuery::Anchors(AnchorsArgs {
            cluster_id,
            kind: Some(kind),
            digest: Some(digest),
            ..
        }) => {
            let answer = registry
                .anchor(cluster_id.clone(), kind.clone(), digest.clone())
                .await?
                .value;
            let anchor = answer.anchor.ok_or_else(|| {
                Failure::new(
                    Exit::NotFound,
                    "anchor_not_found",
                    format!("{digest} was never anchored as {kind}"),
                )
                .remedy("see virtengine query hpc anchors")
            })?;
            printer.print(&AnchorAt {
                anchor,
                block: answer.block,
            })
        }
        HpcQuery::Anchors(AnchorsArgs {
            cluster_id,
            kind,
            page,
            ..
        }) => {
            let ask = async |cursor, limit| {
                value(
                    registry
                        .anchors(cluster_id.clone(), kind.clone(), cursor, limit)
                        .await,
                )
            };
            printer.print(&pages(page, ask).await?)
        }
    }
}

fn value<T>(answer: Result<At<T>, QueryError>) -> Result<T, Failure> {
    Ok(answer?.value)
}
