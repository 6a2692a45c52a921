//! Parameters and administration of the contract.

use hpc_schema::registry::{ClusterCreation, Coin, ConfigAnswer, Params};

use super::words::{block, yes_no};
use super::{Lines, Text};

impl Text for Params {
    fn text(&self) -> String {
        let Self {
            heartbeat_interval,
            heartbeat_timeout,
            offline_threshold,
            deregistration_delay,
            retention,
            batch_limit,
            cluster_creation,
            cluster_deposit,
        } = self;
        let mut lines = Lines::new();
        for (key, seconds) in [
            ("heartbeat_interval", heartbeat_interval),
            ("heartbeat_timeout", heartbeat_timeout),
            ("offline_threshold", offline_threshold),
            ("deregistration_delay", deregistration_delay),
            ("retention", retention),
        ] {
            lines.line(key, format!("{seconds}s"));
        }
        let creation = match cluster_creation {
            ClusterCreation::Open => "open",
            ClusterCreation::Admin => "admin",
        };
        lines
            .line("batch_limit", batch_limit)
            .line("cluster_creation", creation);
        let deposit = |Coin { denom, amount }: &Coin| format!("{amount}{denom}");
        lines.line(
            "cluster_deposit",
            cluster_deposit.as_ref().map_or_else(|| "none".into(), deposit),
        );
        lines.finish()
    }
}

impl Text for ConfigAnswer {
    fn text(&self) -> String {
        let Self {
            admin,
            proposed_admin,
            registrations_paused,
            contract,
            version,
            layout,
            chain_id,
            block: at,
        } = self;
        let mut lines = Lines::new();
        lines
            .line("admin", admin)
            .maybe("proposed_admin", proposed_admin.as_deref());
        lines.line("registrations_paused", yes_no(*registrations_paused));
        lines
            .line("contract", contract)
            .line("version", version)
            .line("layout", layout);
        lines.line("chain_id", chain_id);
        block(&mut lines, at);
        lines.finish()
    }
}
