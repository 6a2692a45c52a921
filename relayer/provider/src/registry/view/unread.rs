use std::collections::BTreeSet;

use hpc_schema::id::ClusterId;

use super::Registry;

/// Of which clusters the chain may have nodes that are not known here.
#[derive(Debug, Default)]
pub(super) enum Unread {
    /// Nothing has been read since the start.
    #[default]
    Everything,
    /// These could not be read.
    Of(BTreeSet<ClusterId>),
}

impl Registry {
    /// Whether the chain may have nodes of this cluster that the gateway has not read yet, as after a start on an empty disk:
    /// then nobody is told that they are not registered.
    #[must_use]
    pub fn is_unread(&self, cluster: &ClusterId) -> bool {
        match &self.read().unread {
            Unread::Everything => true,
            Unread::Of(clusters) => clusters.contains(cluster),
        }
    }

    /// The same of any cluster.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        match &self.read().unread {
            Unread::Everything => true,
            Unread::Of(clusters) => !clusters.is_empty(),
        }
    }

    /// Every cluster that is served has been looked for: all nodes of `whole` have been read, those of `broken` have not.
    pub(in crate::registry) fn looked_for(&self, whole: &BTreeSet<ClusterId>, broken: BTreeSet<ClusterId>) {
        let mut inner = self.write();
        let mut unread = match std::mem::take(&mut inner.unread) {
            Unread::Everything => BTreeSet::new(),
            Unread::Of(clusters) => clusters,
        };
        unread.retain(|cluster| !whole.contains(cluster));
        unread.extend(broken);
        inner.unread = Unread::Of(unread);
    }
}
