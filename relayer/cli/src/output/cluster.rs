//! Clusters.

use hpc_schema::registry::{AggregateView, BlockRef, Cluster, ClusterAnswer, ClustersAnswer, JobIds};
use serde::Serialize;

use super::aggregate::aggregate;
use super::words::{block, more, yes_no};
use super::{Align, Lines, Table, Text};

/// One cluster; in JSON its members stand at the top, beside `aggregate` and `block`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ClusterAt {
    #[serde(flatten)]
    cluster: Cluster,
    aggregate: AggregateView,
    block: BlockRef,
}

impl From<ClusterAnswer> for ClusterAt {
    fn from(
        ClusterAnswer {
            cluster,
            aggregate,
            block,
        }: ClusterAnswer,
    ) -> Self {
        Self {
            cluster,
            aggregate,
            block,
        }
    }
}

impl Text for ClusterAt {
    fn text(&self) -> String {
        let Cluster {
            cluster_id,
            owner,
            proposed_owner,
            operators,
            name,
            region,
            gateway_endpoint,
            task_public_key,
            job_ids,
            active,
            pages,
            created_at,
            deposit,
        } = &self.cluster;
        let mut lines = Lines::new();
        lines
            .line("cluster_id", cluster_id)
            .line("name", name)
            .line("active", yes_no(*active));
        lines
            .line("owner", owner)
            .maybe("proposed_owner", proposed_owner.as_deref());
        lines.list("operators", operators);
        lines
            .maybe("region", region.as_deref())
            .maybe("gateway_endpoint", gateway_endpoint.as_deref());
        lines.maybe("task_public_key", *task_public_key);
        let job_ids = match job_ids {
            JobIds::Plain => "plain",
            JobIds::Hashed => "hashed",
            JobIds::None => "none",
        };
        lines
            .line("job_ids", job_ids)
            .line("pages", pages)
            .line("created_at", created_at)
            .maybe(
                "deposit",
                deposit.as_ref().map(|c| format!("{}{}", c.amount, c.denom)),
            );
        lines.block("aggregate", |l| aggregate(l, &self.aggregate));
        block(&mut lines, &self.block);
        lines.finish()
    }
}

impl Text for ClustersAnswer {
    fn text(&self) -> String {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("CLUSTER", Left),
            ("NAME", Left),
            ("ACTIVE", Left),
            ("REGION", Left),
            ("PAGES", Right),
            ("OWNER", Left),
            ("GATEWAY", Left),
        ]);
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        for c in &self.clusters {
            table.row([
                c.cluster_id.to_string(),
                c.name.clone(),
                yes_no(c.active).to_owned(),
                or_dash(&c.region),
                c.pages.to_string(),
                c.owner.clone(),
                or_dash(&c.gateway_endpoint),
            ]);
        }
        table.finish()
    }

    fn remark(&self) -> Option<String> {
        more(self.clusters.is_empty(), "clusters", self.next.as_deref())
    }
}
