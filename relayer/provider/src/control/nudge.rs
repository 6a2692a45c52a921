use std::io;
use std::os::unix::net::UnixDatagram as Sync;

use hpc_schema::id::{ClusterId, NodeId};
use tokio::net::UnixDatagram;

use crate::home::Home;

/// Before the names of a cluster and its node, which have 64 bytes at most.
const NODE: &str = "node ";
const LONGEST: usize = 160;

/// Hears that another process has decided something: the daemon then looks at once.
#[derive(Debug)]
pub struct Nudges(Option<UnixDatagram>);

impl Nudges {
    /// Listens on a socket in the daemon's directory, which is its owner's alone. Without it decisions are found a
    /// quarter of a second later, and tasks within five seconds.
    #[must_use]
    pub fn listen(home: &Home) -> Self {
        let path = home.wake_socket();
        // Of a daemon that ended; the directory's lock says that no other runs.
        let bound = match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => UnixDatagram::bind(&path),
        };
        if let Err(e) = &bound {
            tracing::warn!(error = %e, path = %path.display(), "decisions are found late: no socket");
        }
        Self(bound.ok())
    }

    /// Ends when there was a nudge. Of several that came together some may have found no place: then all is looked at.
    pub async fn heard(&self) -> Nudge {
        let Some(socket) = &self.0 else {
            return std::future::pending().await;
        };
        let mut word = [0; LONGEST];
        let heard = match socket.recv(&mut word).await {
            Ok(length) => word.get(..length).and_then(Nudge::read),
            Err(_) => {
                // Not again at once, and for ever.
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                None
            }
        };
        let mut alone = true;
        while socket.try_recv(&mut word).is_ok() {
            alone = false;
        }
        heard.filter(|_| alone).unwrap_or(Nudge::Look)
    }
}

/// What a nudge says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nudge {
    /// Something has been decided.
    Look,
    /// Something waits for this node, and nothing else has changed.
    Node(ClusterId, NodeId),
}

impl Nudge {
    fn read(word: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(word).ok()?;
        let (cluster, node) = text.strip_prefix(NODE)?.split_once(' ')?;
        Some(Self::Node(cluster.parse().ok()?, node.parse().ok()?))
    }
}

/// Lets the daemon look at once, if it runs.
pub fn nudge(home: &Home) {
    say(home, b"look");
}

/// Lets the daemon give a node that waits what there is for it, if it runs.
pub fn nudge_node(home: &Home, cluster: &ClusterId, node: &NodeId) {
    say(home, format!("{NODE}{cluster} {node}").as_bytes());
}

fn say(home: &Home, word: &[u8]) {
    if let Ok(socket) = Sync::unbound() {
        // It does not run, or has plenty to look at.
        drop(socket.set_nonblocking(true));
        drop(socket.send_to(word, home.wake_socket()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_word_names_its_node_and_several_or_other_words_say_look() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path());
        // Nobody hears it, and nobody waits.
        nudge(&home);
        let nudges = Nudges::listen(&home);
        // As long as ids may be.
        let (cluster, node): (ClusterId, NodeId) =
            ("c".repeat(64).parse().unwrap(), "n".repeat(64).parse().unwrap());
        nudge_node(&home, &cluster, &node);
        assert_eq!(nudges.heard().await, Nudge::Node(cluster.clone(), node.clone()));
        nudge(&home);
        assert_eq!(nudges.heard().await, Nudge::Look);
        nudge_node(&home, &cluster, &node);
        nudge_node(&home, &cluster, &node);
        assert_eq!(nudges.heard().await, Nudge::Look);
        for word in [
            "",
            "node",
            "node hpc-cluster-1",
            "node hpc-cluster-1 a b",
            "node \u{fc} node-1",
        ] {
            say(&home, word.as_bytes());
            assert_eq!(nudges.heard().await, Nudge::Look, "{word}");
        }
        say(&home, &[255; 2 * LONGEST]);
        assert_eq!(nudges.heard().await, Nudge::Look);
    }
}
