use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network such as `10.0.0.0/8` or `2001:db8::/32`; an address alone is a network of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network; write e.g. 10.0.0.0/8 or 2001:db8::/32")]
pub struct NetworkError(String);

impl Network {
    /// Whether the address lies in it.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let shift = 32 - u32::from(self.prefix);
                let cut = |bits: u32| bits.checked_shr(shift).unwrap_or(0);
                cut(net.into()) == cut(ip.into())
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let shift = 128 - u32::from(self.prefix);
                let cut = |bits: u128| bits.checked_shr(shift).unwrap_or(0);
                cut(net.into()) == cut(ip.into())
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;
    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let bad = || NetworkError(text.to_owned());
        let (address, prefix) = text.split_once('/').unwrap_or((text, ""));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            "" if !text.contains('/') => longest,
            digits => digits.parse().map_err(|_| bad())?,
        };
        if prefix > longest {
            return Err(bad());
        }
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_lies_in_its_networks_and_in_no_others() {
        for (network, ip, within) in [
            ("10.0.0.0/8", "10.255.1.2", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "2001:db8::1", true),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert_eq!(parsed.contains(ip.parse().unwrap()), within, "{network} {ip}");
            assert_eq!(parsed.to_string().parse::<Network>().unwrap(), parsed);
        }
        for bad in ["", "10.0.0.0/", "10.0.0.0/33", "::/129", "10.0.0/8", "x/8"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }
}
