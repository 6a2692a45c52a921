use std::collections::BTreeSet;

use hpc_schema::id::ClusterId;

use super::Registry;

/// Of which clusters all nodes have been read since the start.
#[derive(Debug, Default)]
pub(super) struct Reading {
    whole: BTreeSet<ClusterId>,
    /// Those that are served; none: no reading of all of them has come to its end yet.
    served: Option<BTreeSet<ClusterId>>,
}

impl Registry {
    /// Whether the chain may have nodes of this cluster that the gateway has not read since its start, as on an empty disk:
    /// then nobody is told that they are not registered.
    #[must_use]
    pub fn is_unread(&self, cluster: &ClusterId) -> bool {
        let inner = self.read();
        let Reading { whole, served } = &inner.reading;
        let is_served = served.as_ref().is_none_or(|all| all.contains(cluster));
        is_served && !whole.contains(cluster)
    }

    /// The same of any cluster.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        let inner = self.read();
        let Reading { whole, served } = &inner.reading;
        served.as_ref().is_none_or(|all| !all.is_subset(whole))
    }

    /// All nodes of the cluster have been read.
    pub(in crate::registry) fn read_whole(&self, cluster: &ClusterId) {
        self.write().reading.whole.insert(cluster.clone());
    }

    /// These clusters are served, and each has been looked for, whether or not it could be read.
    pub(in crate::registry) fn looked_for(&self, served: BTreeSet<ClusterId>) {
        self.write().reading.served = Some(served);
    }
}
