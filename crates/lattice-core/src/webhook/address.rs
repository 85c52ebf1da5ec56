//! Where events may be posted to. Whoever may create a webhook must not be able to reach through it what answers only
//! from inside: this host, the private networks around it, a cloud's metadata. design: 8-interfaces "Security"
//!
//! Receivers in private networks are common: the configuration names the ranges in which they are. Names are judged by
//! what they resolve to at each connection, and redirects are never followed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

/// How a receiver is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Over TLS.
    Https,
    /// In the clear: only to what the configuration allows.
    Http,
}

/// The ranges that the configuration allows beside the public ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddressPolicy {
    allowed: Vec<IpNet>,
}

impl AddressPolicy {
    /// Public addresses over TLS, and these ranges, over TLS or not.
    pub const fn allowing(allowed: Vec<IpNet>) -> Self {
        Self { allowed }
    }

    /// The same from texts such as `10.1.0.0/16`; a single address is a range too.
    ///
    /// # Errors
    /// The text that is no range.
    pub fn of_ranges(texts: &[String]) -> Result<Self, String> {
        let range = |text: &String| {
            let one = || text.parse::<IpAddr>().map(IpNet::from);
            text.parse::<IpNet>().or_else(|_| one()).map_err(|_| text.chars().take(64).collect())
        };
        texts.iter().map(range).collect::<Result<_, _>>().map(Self::allowing)
    }

    /// Public addresses over TLS, and this host: for trials.
    pub fn of_trials() -> Self {
        let v4 = Ipv4Net::new(Ipv4Addr::LOCALHOST, 8).expect("8 bits of 32");
        Self::allowing(vec![v4.into(), IpAddr::V6(Ipv6Addr::LOCALHOST).into()])
    }

    /// Why an address may not be posted to; none: it may.
    pub fn refusal(&self, scheme: Scheme, address: IpAddr) -> Option<&'static str> {
        let address = innermost(address);
        if is_no_host(address) {
            return Some("is no address of a host");
        }
        if self.allowed.iter().any(|range| range.contains(&address)) {
            return None;
        }
        let inside = match address {
            IpAddr::V4(v4) => inside_v4(v4),
            IpAddr::V6(v6) => inside_v6(v6),
        };
        match (inside, scheme) {
            (Some(what), _) => Some(what),
            (None, Scheme::Https) => None,
            (None, Scheme::Http) => Some("is reached without TLS: events leave for other networks over https only"),
        }
    }
}

/// The address that is spoken to in the end, where one is written within another.
fn innermost(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address.to_canonical() else { return address.to_canonical() };
    let [a, b, c, .., y, z] = v6.segments();
    let v4 = |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match (a, b) {
        // NAT64, and IPv4-compatible addresses.
        (0x64, 0xff9b) => v4(y, z),
        (0, 0) if v6.segments()[2..6] == [0; 4] && y != 0 => v4(y, z),
        // 6to4.
        (0x2002, _) => v4(b, c),
        _ => IpAddr::V6(v6),
    }
}

fn is_no_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] == 0 || v4.octets()[0] >= 224,
        IpAddr::V6(v6) => v6.is_unspecified() || v6.is_multicast(),
    }
}

const fn inside_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, ..] = address.octets();
    if address.is_loopback() {
        Some("is this host itself, which the configuration does not allow (webhooks.allow)")
    } else if address.is_link_local() {
        Some("is link-local, where clouds give out credentials; the configuration does not allow it (webhooks.allow)")
    } else if address.is_private() || (a == 100 && b & 0xc0 == 64) || (a == 198 && b & 0xfe == 18) {
        Some("is private, and the configuration does not allow its range (webhooks.allow)")
    } else {
        None
    }
}

const fn inside_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_loopback() {
        Some("is this host itself, which the configuration does not allow (webhooks.allow)")
    } else if address.is_unicast_link_local() {
        Some("is link-local; the configuration does not allow it (webhooks.allow)")
    } else if address.is_unique_local() || address.segments()[0] & 0xffc0 == 0xfec0 {
        Some("is private, and the configuration does not allow its range (webhooks.allow)")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_hosts_are_reached_unless_the_configuration_names_others() {
        use Scheme::{Http, Https};
        let rows = [
            (Https, "203.0.113.9", true),
            (Https, "2001:db8::9", true),
            (Http, "203.0.113.9", false),
            (Https, "127.0.0.1", false),
            (Https, "127.8.9.1", false),
            (Https, "::1", false),
            (Https, "::ffff:127.0.0.1", false),
            (Https, "::127.0.0.1", false),
            (Https, "64:ff9b::7f00:1", false),
            (Https, "2002:7f00:1::1", false),
            (Https, "192.168.1.1", false),
            (Https, "172.16.0.1", false),
            (Https, "100.64.0.1", false),
            (Https, "198.18.0.1", false),
            (Https, "fd12::1", false),
            (Https, "fec0::1", false),
            (Https, "169.254.169.254", false),
            (Https, "::ffff:169.254.169.254", false),
            (Https, "fe80::1", false),
            (Https, "fd00:ec2::254", false),
            // What the configuration names.
            (Https, "10.1.2.3", true),
            (Http, "10.1.2.3", true),
            (Http, "::ffff:10.1.2.3", true),
            (Https, "10.2.0.1", false),
            // Never, whatever it names.
            (Https, "0.0.0.0", false),
            (Https, "::", false),
            (Https, "224.0.0.1", false),
            (Https, "255.255.255.255", false),
            (Https, "ff02::1", false),
        ];
        let policy = AddressPolicy::allowing(vec!["10.1.0.0/16".parse().unwrap(), "224.0.0.0/4".parse().unwrap()]);
        for (scheme, address, allowed) in rows {
            assert_eq!(policy.refusal(scheme, address.parse().unwrap()).is_none(), allowed, "{scheme:?} {address}");
        }
    }
}
