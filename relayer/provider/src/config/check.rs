use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::{Config, ConfigError, Span, apart};
use crate::store::{StoreError, check_url};

pub(super) fn fail(key: &'static str, message: impl Into<String>) -> Result<(), ConfigError> {
    Err(ConfigError::Value {
        key,
        message: message.into(),
    })
}

impl Config {
    /// Values that parse and still cannot work.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.chain.id.len() > 64 {
            fail("chain.id", "has more than 64 characters")?;
        }
        if self.chain.rpc.is_empty() {
            fail(
                "chain.rpc",
                "names no endpoint; write e.g. [http://127.0.0.1:26657]",
            )?;
        }
        for url in &self.chain.rpc {
            if !(url.starts_with("http://") || url.starts_with("https://")) {
                fail("chain.rpc", format!("{url:?} is no http:// or https:// URL"))?;
            }
        }
        self.check_prices()?;
        self.tasks.check()?;
        range("chain.poll", self.chain.poll, Span::millis(50), Span::seconds(30))?;
        range(
            "chain.tx_lifetime",
            self.chain.tx_lifetime,
            Span::seconds(1),
            Span::seconds(240),
        )?;
        range(
            "chain.halt_after",
            self.chain.halt_after,
            Span::seconds(1),
            Span::seconds(600),
        )?;
        let mut names: Vec<&String> = self.keys.paying().map(|(_, name)| name).collect();
        names.sort();
        if names.windows(2).any(|pair| pair.first() == pair.last()) {
            fail(
                "keys.extra_relayers",
                "names a key twice; one transaction at a time is under way for a key",
            )?;
        }
        if names.len() > 64 {
            fail("keys.extra_relayers", "has more than 63 keys")?;
        }
        range(
            "chain.sync",
            self.chain.sync,
            Span::millis(100),
            Span::seconds(60),
        )?;
        range(
            "chain.timeout",
            self.chain.timeout,
            Span::millis(100),
            Span::seconds(60),
        )?;
        range(
            "gateway.request_timeout",
            self.gateway.request_timeout,
            Span::millis(100),
            Span::seconds(60),
        )?;
        range(
            "gateway.handshake_timeout",
            self.gateway.handshake_timeout,
            Span::millis(100),
            Span::seconds(60),
        )?;
        range(
            "gateway.idle_timeout",
            self.gateway.idle_timeout,
            Span::seconds(1),
            Span::seconds(3600),
        )?;
        range(
            "gateway.certificate_lifetime",
            self.gateway.certificate_lifetime,
            Span::seconds(30),
            Span::seconds(30 * 24 * 3600),
        )?;
        range(
            "batch.submit_interval",
            self.batch.submit_interval,
            Span::millis(100),
            Span::seconds(240),
        )?;
        if let Some(url) = &self.store.url
            && let Err(StoreError::Config { key, message }) = check_url(url)
        {
            fail(key, message)?;
        }
        range(
            "store.history",
            self.store.history,
            Span::seconds(60),
            Span::seconds(30 * 24 * 3600),
        )?;
        range(
            "stop.intake",
            self.stop.intake,
            Span::seconds(0),
            Span::seconds(300),
        )?;
        range(
            "stop.settlement",
            self.stop.settlement,
            Span::seconds(0),
            Span::seconds(300),
        )?;
        range(
            "gateway.header_timeout",
            self.gateway.header_timeout,
            Span::millis(100),
            Span::seconds(60),
        )?;
        for (key, value) in [
            ("gateway.max_connections", self.gateway.max_connections),
            (
                "gateway.max_connections_per_node",
                self.gateway.max_connections_per_node,
            ),
            ("gateway.max_anonymous", self.gateway.max_anonymous),
            (
                "gateway.max_anonymous_per_address",
                self.gateway.max_anonymous_per_address,
            ),
        ] {
            if !(1..=1_000_000).contains(&value) {
                fail(key, "must be 1 to 1000000")?;
            }
        }
        // A heartbeat with a diagnostic's whole report must fit, or its node is refused for ever.
        if !(32_768..=1_048_576).contains(&self.gateway.max_body_bytes) {
            fail("gateway.max_body_bytes", "must be 32768 to 1048576")?;
        }
        if !(6..=60_000).contains(&self.gateway.requests_per_minute) {
            fail("gateway.requests_per_minute", "must be 6 to 60000")?;
        }
        if self.gateway.names.is_empty() {
            fail(
                "gateway.names",
                "names no host; write the names and addresses that agents connect to",
            )?;
        }
        if !(1..=4096).contains(&self.batch.max_size) {
            fail("batch.max_size", "must be 1 to 4096")?;
        }
        if !(20_000..=1_000_000).contains(&self.batch.max_tx_bytes) {
            fail("batch.max_tx_bytes", "must be 20000 to 1000000")?;
        }
        if self.batch.max_gas < 1_000_000 {
            fail("batch.max_gas", "must be at least 1000000")?;
        }
        if let Some(s) = self.agents.sampling_interval_seconds
            && !(10..=120).contains(&s)
        {
            fail("agents.sampling_interval_seconds", "must be 10 to 120")?;
        }
        if self.agents.probe_neighbours > 16 {
            fail("agents.probe_neighbours", "must be 0 to 16")?;
        }
        log_level(&self.log.level)?;
        if !(6..=60_000).contains(&self.admin.requests_per_minute) {
            fail("admin.requests_per_minute", "must be 6 to 60000")?;
        }
        if !self.admin.tls && self.admin.listen.is_some_and(|a| !a.ip().is_loopback()) {
            fail(
                "admin.listen",
                "must be a loopback address without TLS, for credentials travel over it; set admin.tls: true",
            )?;
        }
        range(
            "audit.anchor_interval",
            self.audit.anchor_interval,
            Span::seconds(1),
            Span::seconds(7 * 24 * 3600),
        )?;
        if !self.ops.listen.ip().is_loopback() {
            fail(
                "ops.listen",
                "must be a loopback address: it has no authentication",
            )?;
        }
        self.check_listeners()?;
        self.alerts.check()
    }

    /// What running needs beyond a sound file: the chain and the contract must be named, and an operator key that pays for no
    /// reports.
    ///
    /// # Errors
    /// Names the key and what to do.
    pub fn require_chain(&self) -> Result<(), ConfigError> {
        if self.chain.id.is_empty() {
            fail(
                "chain.id",
                "is not set; write the chain id into config.yaml or VIRTENGINE_PROVIDER__CHAIN__ID",
            )?;
        }
        if self.chain.contract.is_empty() {
            fail(
                "chain.contract",
                "is not set; deploy it with `virtengine deploy` and write its address into config.yaml",
            )?;
        }
        // Not of every command: the remedy is one.
        if let Some((key, name)) = self.keys.paying().find(|(_, n)| **n == self.keys.operator) {
            fail(
                "keys.operator",
                format!("names {name}, which {key} names as well: {}", apart(key)),
            )?;
        }
        Ok(())
    }
}

/// Every directive must say a level: a word that is none would be taken for the name of a part of the program, the only one to
/// be logged then.
fn log_level(text: &str) -> Result<(), ConfigError> {
    let levels = "write off, error, warn, info, debug or trace, or parts with levels of their own such as info,hpc_chain=debug";
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let bad = text
        .split(',')
        .find(|directive| !is_level(directive.rsplit_once('=').map_or(*directive, |(_, level)| level)));
    if let Some(bad) = bad {
        fail("log.level", format!("{bad:?} says no level; {levels}"))?;
    }
    match EnvFilter::try_new(text) {
        Ok(_) => Ok(()),
        Err(e) => fail("log.level", format!("{e}; {levels}")),
    }
}

pub(super) fn range(key: &'static str, value: Span, min: Span, max: Span) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    fail(key, format!("is {value}, must be {min} to {max}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Config::parse(text, "c", std::iter::empty())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn values_that_cannot_work_are_refused_by_name() {
        assert!(error("chain: {rpc: []}").starts_with("chain.rpc"));
        assert!(error("chain: {gas_price: abc}").starts_with("chain.gas_price"));
        assert!(error("chain: {gas_price_max: abc}").starts_with("chain.gas_price_max"));
        assert!(error("chain: {rpc: ['tcp://x']}").starts_with("chain.rpc"));
        assert!(error("gateway: {certificate_lifetime: 1s}").contains("must be 30s to 720h"));
        assert!(error("batch: {max_size: 0}").starts_with("batch.max_size"));
        assert!(error("batch: {submit_interval: 10m}").contains("must be 100ms to 4m"));
        assert!(error("ops: {listen: '0.0.0.0:9464'}").starts_with("ops.listen"));
        assert!(
            error("alerts: {webhooks: [{url: 'ftp://x', secret_file: s}]}").starts_with("alerts.webhooks")
        );
        assert!(error("alerts: {alertmanagers: [{url: 'http://u:p@x'}]}").contains("no user and password"));
        assert!(error("alerts: {webhooks: [{url: 'http://x'}]}").contains("secret_file"));
        assert!(error("admin: {listen: '0.0.0.0:9465'}").starts_with("admin.listen"));
        assert!(
            Config::parse(
                "admin: {listen: '0.0.0.0:9465', tls: true}",
                "c",
                std::iter::empty()
            )
            .is_ok()
        );
        assert!(Config::parse("admin: {listen: null}", "c", std::iter::empty()).is_ok());
        assert!(error("audit: {anchor_interval: 200h}").starts_with("audit.anchor_interval"));
        assert!(error("gateway: {max_body_bytes: 32767}").starts_with("gateway.max_body_bytes"));
    }

    #[test]
    fn a_log_level_that_is_none_is_refused_with_those_that_are() {
        for bad in [
            "inof",
            "",
            "info,hpc_chain",
            "hpc_chain=",
            "hpc_chain=loud",
            "info,,debug",
        ] {
            let said = error(&format!("log: {{level: '{bad}'}}"));
            assert!(
                said.starts_with("log.level: ") && said.contains("error, warn, info, debug or trace"),
                "{bad}: {said}"
            );
        }
        for good in [
            "info",
            "WARN",
            "off",
            "info,hpc_chain=debug",
            "hpc_chain::rpc[send]=trace",
        ] {
            let text = format!("log: {{level: '{good}'}}");
            assert!(Config::parse(&text, "c", std::iter::empty()).is_ok(), "{good}");
        }
    }

    #[test]
    fn an_operator_key_that_pays_for_reports_as_well_is_refused_with_both_keys_and_the_remedy() {
        let error = |keys: &str| {
            let text = format!("chain: {{id: c, contract: k}}\nkeys: {keys}");
            let config = Config::parse(&text, "c", std::iter::empty()).unwrap();
            config.require_chain().unwrap_err().to_string()
        };
        let said = error("{operator: a, relayer: a}");
        assert!(said.starts_with("keys.operator"), "{said}");
        assert!(
            said.contains("keys.relayer") && said.contains("virtengine-provider keys add"),
            "{said}"
        );
        let said = error("{operator: b, extra_relayers: [a, b]}");
        assert!(
            said.starts_with("keys.operator") && said.contains("keys.extra_relayers"),
            "{said}"
        );
    }

    #[test]
    fn running_needs_chain_and_contract() {
        let c = Config::default();
        assert!(c.check().is_ok());
        assert!(c.require_chain().unwrap_err().to_string().starts_with("chain.id"));
    }
}
