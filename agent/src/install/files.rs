//! The files of `deploy/`, as they were when this program was built.

use super::Os;

pub(super) const CONFIG: &str = include_str!("../../../deploy/package/config.yaml");
pub(super) const ENVIRONMENT: &str = include_str!("../../../deploy/package/environment");

/// What starts the agent, and what lets it read: path, text, mode.
type Service = (&'static str, &'static str, u32);

const LINUX: [Service; 5] = [
    (
        "/etc/systemd/system/virtengine-node-agent.service",
        include_str!("../../../deploy/systemd/virtengine-node-agent.service"),
        0o644,
    ),
    (
        "/etc/systemd/system/virtengine-node-tasks.service",
        include_str!("../../../deploy/systemd/virtengine-node-tasks.service"),
        0o644,
    ),
    (
        "/etc/systemd/system/virtengine-node-helper.socket",
        include_str!("../../../deploy/systemd/virtengine-node-helper.socket"),
        0o644,
    ),
    (
        "/etc/systemd/system/virtengine-node-helper@.service",
        include_str!("../../../deploy/systemd/virtengine-node-helper@.service"),
        0o644,
    ),
    (
        "/etc/udev/rules.d/60-virtengine-node-agent.rules",
        include_str!("../../../deploy/udev/60-virtengine-node-agent.rules"),
        0o644,
    ),
];

const BSD: [Service; 1] = [(
    "/usr/local/etc/rc.d/virtengine_node_agent",
    include_str!("../../../deploy/rc.d/virtengine_node_agent"),
    0o755,
)];

pub(super) fn services(os: Os) -> &'static [Service] {
    match os {
        Os::Linux => &LINUX,
        Os::Bsd => &BSD,
    }
}
