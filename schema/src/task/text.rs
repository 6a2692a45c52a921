//! Texts of parameters, checked when they are read: what reaches a handler can be used as an argument, a file name
//! or a line of a file.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A text of another form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be {0}")]
pub struct TextError(&'static str);

macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $pattern:literal, $what:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schemars(extend("pattern" = $pattern))]
        pub struct $name(String);

        impl TryFrom<String> for $name {
            type Error = TextError;
            fn try_from(s: String) -> Result<Self, TextError> {
                let check: fn(&str) -> bool = $check;
                if check(&s) { Ok(Self(s)) } else { Err(TextError($what)) }
            }
        }

        impl FromStr for $name {
            type Err = TextError;
            fn from_str(s: &str) -> Result<Self, TextError> {
                Self::try_from(s.to_owned())
            }
        }

        crate::text::as_text!($name);
    };
}

/// 1 to `most` of `[A-Za-z0-9._-]`, the first alphanumeric.
fn name(s: &str, most: usize) -> bool {
    let mut bytes = s.bytes();
    s.len() <= most
        && bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn lower_hex(s: &str) -> bool {
    s.bytes()
        .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

checked_text!(
    /// What a tenant was given: the name under which a task's effects stay on the host.
    AllocationId,
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
    "1 to 64 of A-Z a-z 0-9 . _ -, the first alphanumeric",
    |s| name(s, 64)
);
checked_text!(
    /// A virtual machine's name: also of its folder and its domain.
    VmId,
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$",
    "1 to 48 of A-Z a-z 0-9 . _ -, the first alphanumeric",
    |s| name(s, 48)
);
checked_text!(
    /// A slot of a node.
    SlotId,
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$",
    "1 to 48 of A-Z a-z 0-9 . _ -, the first alphanumeric",
    |s| name(s, 48)
);
checked_text!(
    /// A network bridge.
    BridgeName,
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$",
    "1 to 15 of A-Z a-z 0-9 . _ -, the first alphanumeric",
    |s| name(s, 15)
);
checked_text!(
    /// A login name that `useradd` takes.
    UserName,
    r"^[a-z][a-z0-9_-]{0,30}[a-z0-9]$",
    "2 to 32 of a-z 0-9 _ -, the first a letter, the last a letter or digit",
    |s| {
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
        (2..=32).contains(&s.len())
            && s.bytes().all(good)
            && s.starts_with(|c: char| c.is_ascii_lowercase())
            && s.ends_with(|c: char| c.is_ascii_alphanumeric())
    }
);
checked_text!(
    /// A package of the distribution.
    PackageName,
    r"^[a-z0-9][a-z0-9+.-]{1,63}$",
    "2 to 64 of a-z 0-9 + . -, the first alphanumeric",
    |s| {
        let first = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        (2..=64).contains(&s.len())
            && s.bytes().next().is_some_and(first)
            && s.bytes().all(|b| first(b) || matches!(b, b'+' | b'.' | b'-'))
    }
);
checked_text!(
    /// A PCI function: domain, bus, device, function.
    PciAddress,
    r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$",
    "a PCI address such as 0000:3b:00.0, in lower case",
    |s| {
        let mut colons = s.splitn(3, ':');
        let (Some(domain), Some(bus), Some(rest)) = (colons.next(), colons.next(), colons.next()) else {
            return false;
        };
        let Some((device, function)) = rest.split_once('.') else {
            return false;
        };
        let hex = |part: &str, len| part.len() == len && lower_hex(part);
        hex(domain, 4)
            && hex(bus, 2)
            && hex(device, 2)
            && function.len() == 1
            && function.bytes().all(|b| (b'0'..=b'7').contains(&b))
    }
);
checked_text!(
    /// A unicast Ethernet address.
    MacAddress,
    r"^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$",
    "a unicast Ethernet address such as 52:54:00:12:34:56, in lower case",
    |s| {
        let parts: Vec<&str> = s.split(':').collect();
        let unicast = s.as_bytes().get(1).is_some_and(|b| b"02468ace".contains(b));
        parts.len() == 6 && unicast && parts.iter().all(|p| p.len() == 2 && lower_hex(p))
    }
);
checked_text!(
    /// SHA-256 of a file.
    Sha256Hex,
    r"^[0-9a-f]{64}$",
    "the lower-case hex of a SHA-256 (64 characters)",
    |s| s.len() == 64 && lower_hex(s)
);
checked_text!(
    /// A public key as it stands in `authorized_keys`: type and base64, an optional comment, no options.
    SshPublicKey,
    r"^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com) [A-Za-z0-9+/]{40,2000}={0,2}( [A-Za-z0-9@._+-]{1,128})?$",
    "a public key of OpenSSH in one line: type, base64, optional comment of A-Z a-z 0-9 @ . _ + -, and no options",
    ssh_public_key
);
checked_text!(
    /// An absolute path without `.`, `..`, empty parts or control characters.
    HostPath,
    r"^(/[^/\x00-\x1f\x7f]+)+$",
    "an absolute path of at most 1024 bytes without . or .. or empty parts",
    host_path
);
checked_text!(
    /// Where something is fetched from.
    HttpsUrl,
    r"^https://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?/[A-Za-z0-9._~%/+-]{0,1024}$",
    "https://host/path of at most 1300 characters, without user, query or fragment",
    https_url
);

fn ssh_public_key(s: &str) -> bool {
    const TYPES: [&str; 7] = [
        "ssh-ed25519",
        "ssh-rsa",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
    ];
    let mut words = s.split(' ');
    let (Some(kind), Some(key)) = (words.next(), words.next()) else {
        return false;
    };
    let base64 = key.trim_end_matches('=');
    let sound = |c: &str| {
        (1..=128).contains(&c.len())
            && c.bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'@' | b'.' | b'_' | b'+' | b'-'))
    };
    TYPES.contains(&kind)
        && (40..=2000).contains(&base64.len())
        && key.len() - base64.len() <= 2
        && base64
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
        && words.next().is_none_or(sound)
        && words.next().is_none()
}

fn host_path(s: &str) -> bool {
    let Some(rest) = s.strip_prefix('/') else {
        return false;
    };
    s.len() <= 1024
        && !s.chars().any(char::is_control)
        && rest
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..")
}

fn https_url(s: &str) -> bool {
    let Some((authority, path)) = s.strip_prefix("https://").and_then(|r| r.split_once('/')) else {
        return false;
    };
    let (host, port) = authority.split_once(':').unwrap_or((authority, "443"));
    let digits = port.bytes().all(|b| b.is_ascii_digit());
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-');
    let path_byte =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'~' | b'%' | b'/' | b'+' | b'-');
    (1..=253).contains(&host.len())
        && host.bytes().all(good)
        && digits
        && port.parse::<u16>().is_ok_and(|p| p > 0 && port.len() <= 5)
        && path.len() <= 1024
        && path.bytes().all(path_byte)
        && path.split('/').all(|part| part != "..")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;
    use proptest::string::string_regex;
    use proptest::test_runner::TestRunner;
    use regex_automata::meta::Regex;

    use super::*;
    use crate::id::{ClusterId, NodeId, TaskId};

    /// Holds what is taken against the pattern of the type's schema: by texts of that pattern, most of them with one or two
    /// characters put in somewhere. It shows all that is taken; `exactly`: and nothing else.
    fn shows<T: FromStr + JsonSchema>(exactly: bool) {
        let schema = schemars::schema_for!(T);
        let pattern = schema.get("pattern").unwrap().as_str().unwrap();
        let shown = Regex::new(pattern).unwrap();
        let inside = string_regex(pattern.trim_start_matches('^').trim_end_matches('$')).unwrap();
        let put = "[-+a-zA-Z0-9._:/@=~% \n\\x00é]{0,2}";
        let texts = (inside, any::<Index>(), put).prop_map(|(mut text, at, put)| {
            let places: Vec<_> = (0..=text.len()).filter(|i| text.is_char_boundary(*i)).collect();
            text.insert_str(*at.get(&places), &put);
            text
        });
        let held = TestRunner::default().run(&texts, |text| {
            let taken = text.parse::<T>().is_ok();
            prop_assert!(!taken || shown.is_match(&text), "{}: {:?}", pattern, text);
            prop_assert!(
                !exactly || taken || !shown.is_match(&text),
                "{}: {:?}",
                pattern,
                text
            );
            Ok(())
        });
        held.unwrap();
    }

    #[test]
    fn the_schema_shows_what_is_taken() {
        shows::<NodeId>(true);
        shows::<ClusterId>(true);
        shows::<TaskId>(true);
        shows::<AllocationId>(true);
        shows::<VmId>(true);
        shows::<SlotId>(true);
        shows::<BridgeName>(true);
        shows::<UserName>(true);
        shows::<PackageName>(true);
        shows::<PciAddress>(true);
        shows::<MacAddress>(true);
        shows::<Sha256Hex>(true);
        shows::<SshPublicKey>(true);
        // Of these a pattern would be long: no part is `.` or `..`, a path has a longest length, a port is 1 to 65535.
        shows::<HostPath>(false);
        shows::<HttpsUrl>(false);
    }

    fn is<T: FromStr>(s: &str) -> bool {
        s.parse::<T>().is_ok()
    }

    #[test]
    fn what_could_be_an_option_a_path_or_a_second_line_is_no_name() {
        for bad in [
            "", "-rf", "--root=/", "../x", "a/b", "a b", "a\nb", ".hidden", "a\0b", "$(id)", "a;b",
        ] {
            assert!(
                !is::<VmId>(bad) && !is::<SlotId>(bad) && !is::<AllocationId>(bad),
                "{bad:?}"
            );
            assert!(
                !is::<BridgeName>(bad) && !is::<UserName>(bad) && !is::<PackageName>(bad),
                "{bad:?}"
            );
        }
        assert!(is::<VmId>("slice-vm-1") && is::<BridgeName>("br-hpc0") && is::<PackageName>("libstdc++6"));
        assert!(is::<UserName>("alice") && !is::<UserName>("Alice") && !is::<UserName>("alice-"));
    }

    #[test]
    fn a_path_leads_nowhere_but_down() {
        for bad in [
            "", "/", "a/b", "/a/../b", "/a/./b", "/a//b", "/a/", "/a\n", "/a/..", "~/x", "/a\0",
        ] {
            assert!(!is::<HostPath>(bad), "{bad:?}");
        }
        assert!(is::<HostPath>("/var/lib/gpuaas/slice-images/jammy.img") && is::<HostPath>("/a/..b"));
    }

    #[test]
    fn addresses_have_their_one_form() {
        assert!(is::<PciAddress>("0000:3b:00.0") && is::<MacAddress>("52:54:00:12:34:56"));
        for bad in [
            "0000:3B:00.0",
            "3b:00.0",
            "0000:3b:00.8",
            "0000:3b:00",
            "0000:3b:00.0/../x",
            "0000:3b:0.00",
        ] {
            assert!(!is::<PciAddress>(bad), "{bad:?}");
        }
        for bad in [
            "53:54:00:12:34:56",
            "52:54:00:12:34",
            "52-54-00-12-34-56",
            "52:54:00:12:34:5g",
        ] {
            assert!(!is::<MacAddress>(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_public_key_brings_no_options_and_no_second_line() {
        let body = "AAAAC3NzaC1lZDI1NTE5AAAAIJ4ZqVAvcFQxWm0m3Tt1Kf1vYzFvXo8x7mYd5x2b4nQ1";
        assert!(is::<SshPublicKey>(&format!("ssh-ed25519 {body} alice@laptop")));
        for bad in [
            format!("command=\"id\" ssh-ed25519 {body}"),
            format!("ssh-ed25519 {body} a\nssh-rsa {body}"),
            format!("ssh-dss {body}"),
            format!("ssh-ed25519 {body} two words"),
            "ssh-ed25519 short".to_owned(),
        ] {
            assert!(!is::<SshPublicKey>(&bad), "{bad:?}");
        }
    }

    #[test]
    fn an_address_to_fetch_from_is_https_and_plain() {
        assert!(is::<HttpsUrl>("https://images.example.com:8443/jammy/1.img"));
        for bad in [
            "http://a/b",
            "https://a",
            "https://u@a/b",
            "https://a/b?c",
            "https://a/../b",
            "https://a:0/b",
            "https://a:99999/b",
            "https://a:+443/b",
            "file:///etc/passwd",
            "https://a/b\r\nHost: c",
        ] {
            assert!(!is::<HttpsUrl>(bad), "{bad:?}");
        }
    }
}
