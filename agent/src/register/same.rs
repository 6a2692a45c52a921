//! Whether the configuration names the node that this state is of.

use hpc_schema::id::{ClusterId, NodeId};

use crate::config::Config;
use crate::state::Registration;

/// `node.id` or `node.cluster_id` is set, and names another node than the one that is registered here: an image, or a state
/// directory that was copied. Two agents that report as one node refuse each other's numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{key} is {wanted}, and this state is registered as {held}: correct {key}, or register this node again (virtengine-provider node-token create --pubkey …, then virtengine-node-agent register)"
)]
pub struct OtherNode {
    /// The key of the configuration.
    pub key: &'static str,
    /// What it says.
    pub wanted: String,
    /// What is registered.
    pub held: String,
}

/// Compares what is set with the registration; what is not set agrees.
///
/// # Errors
/// [`OtherNode`].
pub fn same_node(config: &Config, registration: &Registration) -> Result<(), OtherNode> {
    let node = config.node_id.as_ref().map(NodeId::as_str);
    let cluster = config.cluster_id.as_ref().map(ClusterId::as_str);
    for (key, wanted, held) in [
        ("node.id", node, registration.node_id.as_str()),
        ("node.cluster_id", cluster, registration.cluster_id.as_str()),
    ] {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != held) {
            return Err(OtherNode {
                key,
                wanted: wanted.to_owned(),
                held: held.to_owned(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{parse, resolve};
    use crate::key::NodeKey;
    use crate::state::a_registration;

    #[test]
    fn what_is_set_must_be_what_is_registered_and_what_is_not_set_agrees() {
        let key = NodeKey::from_seed([7; 32]).unwrap().public();
        let registration = a_registration("token-1", key, 7);
        let compared = |node: &str| {
            let text = format!("node: {{{node}}}\nprovider_daemon: {{endpoint: 'https://gateway:1'}}");
            let config = resolve(parse(&text, Path::new("config.yaml")).unwrap()).unwrap();
            same_node(&config, &registration).map_err(|e| e.key)
        };
        let (id, cluster) = (&registration.node_id, &registration.cluster_id);
        for good in [
            "",
            &format!("id: {id}"),
            &format!("id: {id}, cluster_id: {cluster}"),
        ] {
            assert_eq!(compared(good), Ok(()), "{good}");
        }
        assert_eq!(compared("id: another"), Err("node.id"));
        assert_eq!(
            compared(&format!("id: {id}, cluster_id: another")),
            Err("node.cluster_id")
        );
    }
}
