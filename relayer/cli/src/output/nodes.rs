//! Lists of nodes.

use hpc_schema::registry::{JobsAnswer, NodesAnswer, Resources};

use super::words::{jobs_status, millis, more, span};
use super::{Align, Table, Text};

impl Text for NodesAnswer {
    fn text(&self) -> String {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("NODE", Left),
            ("CLUSTER", Left),
            ("STATE", Left),
            ("HEALTH", Left),
            ("AGE", Right),
            ("CORES", Right),
            ("MEMORY GB", Right),
            ("GPUS", Right),
            ("GPU TYPE", Left),
            ("STORAGE GB", Right),
            ("LATENCY", Right),
        ]);
        for node in &self.nodes {
            let Resources {
                cpu_cores,
                memory_gb,
                gpus,
                gpu_type,
                storage_gb,
            } = &node.resources;
            table.row([
                node.node_id.to_string(),
                node.cluster_id.to_string(),
                node.state.to_string(),
                node.health_status.clone().unwrap_or_else(|| "-".into()),
                node.age_seconds.map_or_else(|| "-".into(), span),
                cpu_cores.to_string(),
                memory_gb.to_string(),
                gpus.to_string(),
                gpu_type.clone().unwrap_or_else(|| "-".into()),
                storage_gb.to_string(),
                millis(node.avg_latency_us),
            ]);
        }
        table.finish()
    }

    fn remark(&self) -> Option<String> {
        more(self.nodes.is_empty(), "nodes", self.next.as_deref())
    }
}

impl Text for JobsAnswer {
    fn text(&self) -> String {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("NODE", Left),
            ("STATE", Left),
            ("JOBS", Left),
            ("COUNT", Right),
            ("JOB IDS", Left),
        ]);
        for node in &self.nodes {
            let ids = &node.jobs.active_job_ids;
            table.row([
                node.node_id.to_string(),
                node.state.to_string(),
                jobs_status(node.jobs.status).to_owned(),
                node.jobs.count.to_string(),
                if ids.is_empty() {
                    "-".to_owned()
                } else {
                    ids.join(",")
                },
            ]);
        }
        table.finish()
    }

    fn remark(&self) -> Option<String> {
        more(
            self.nodes.is_empty(),
            "nodes with jobs at risk",
            self.next.as_deref(),
        )
    }
}
