//! Values that do not go together.

use std::net::{IpAddr, SocketAddr};

use hpc_chain::gas::{GasPrice, MoneyError};

use super::check::fail;
use super::{Config, ConfigError};

impl Config {
    /// A ceiling that is none.
    pub(super) fn check_prices(&self) -> Result<(), ConfigError> {
        const MOST: &str = "chain.gas_price_max";
        let bad = |key, e: &dyn std::fmt::Display| ConfigError::Value {
            key,
            message: e.to_string(),
        };
        let price: GasPrice = self
            .chain
            .gas_price
            .parse()
            .map_err(|e: MoneyError| bad("chain.gas_price", &e))?;
        let Some(text) = &self.chain.gas_price_max else {
            return Ok(());
        };
        let most: GasPrice = text.parse().map_err(|e: MoneyError| bad(MOST, &e))?;
        if most.denom() != price.denom() {
            let (of, wanted) = (most.denom(), price.denom());
            fail(
                MOST,
                format!("is in {of}, must be in {wanted}, as chain.gas_price is"),
            )?;
        }
        if most.is_below(&price) {
            fail(
                MOST,
                format!("is {most}, must be at least chain.gas_price, {price}"),
            )?;
        }
        Ok(())
    }

    /// Two that want one port of one address: the second could not listen.
    pub(super) fn check_listeners(&self) -> Result<(), ConfigError> {
        let (gateway, ops) = (self.gateway.listen, self.ops.listen);
        let mut pairs = vec![("ops.listen", ops, "gateway.listen", gateway)];
        if let Some(admin) = self.admin.listen {
            pairs.push(("admin.listen", admin, "gateway.listen", gateway));
            pairs.push(("admin.listen", admin, "ops.listen", ops));
        }
        for (key, one, other_key, other) in pairs {
            if overlap(one, other) {
                fail(
                    key,
                    format!("is {one}, which {other_key} ({other}) takes already; write another port"),
                )?;
            }
        }
        Ok(())
    }
}

/// Whether both cannot be listened on. Of port 0 each gets one of its own.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let covers = |a: IpAddr, b: IpAddr| match a {
        IpAddr::V4(v4) if v4.is_unspecified() => b.is_ipv4(),
        // Whether it takes IPv4 as well is the system's setting (bindv6only): listening shows it.
        IpAddr::V6(v6) if v6.is_unspecified() => b.is_ipv6(),
        _ => a == b,
    };
    a.port() == b.port() && a.port() != 0 && (covers(a.ip(), b.ip()) || covers(b.ip(), a.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ceiling_below_the_price_or_of_another_denomination_is_refused() {
        let error = |text: &str| {
            let parsed = Config::parse(text, "c", std::iter::empty());
            parsed.unwrap_err().to_string()
        };
        let said = error("chain: {gas_price: 0.025ustake, gas_price_max: 1atom}");
        assert!(
            said.starts_with("chain.gas_price_max") && said.contains("ustake"),
            "{said}"
        );
        let said = error("chain: {gas_price: 0.025ustake, gas_price_max: 0.02ustake}");
        assert!(
            said.starts_with("chain.gas_price_max") && said.contains("at least"),
            "{said}"
        );
        let same = "chain: {gas_price: 0.025ustake, gas_price_max: 0.025ustake}";
        assert!(Config::parse(same, "c", std::iter::empty()).is_ok());
    }

    #[test]
    fn listeners_of_one_address_and_port_are_refused_with_both_keys() {
        let listens = |gateway: &str, ops: &str, admin: &str| {
            let text = format!(
                "gateway: {{listen: '{gateway}'}}\nops: {{listen: '{ops}'}}\nadmin: {{listen: '{admin}'}}"
            );
            Config::parse(&text, "c", std::iter::empty()).map_err(|e| e.to_string())
        };
        for (gateway, ops, admin, keys) in [
            (
                "127.0.0.1:1",
                "127.0.0.1:2",
                "127.0.0.1:2",
                ["admin.listen", "ops.listen"],
            ),
            (
                "0.0.0.0:1",
                "127.0.0.1:1",
                "127.0.0.1:2",
                ["ops.listen", "gateway.listen"],
            ),
            (
                "[::]:2",
                "127.0.0.1:1",
                "[::1]:2",
                ["admin.listen", "gateway.listen"],
            ),
        ] {
            let said = listens(gateway, ops, admin).unwrap_err();
            assert!(keys.iter().all(|k| said.contains(k)), "{said}");
        }
        assert!(listens("0.0.0.0:0", "127.0.0.1:0", "127.0.0.1:0").is_ok());
        assert!(listens("[::]:1", "127.0.0.1:1", "127.0.0.1:2").is_ok());
        assert!(listens("127.0.0.2:1", "127.0.0.1:1", "[::1]:1").is_ok());
    }
}
