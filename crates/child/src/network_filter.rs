//! Closes the ways around the TCP ports of a confinement. Landlock checks connections of TCP sockets only.
//!
//! A filter of system calls sees numbers, not addresses. So it refuses whole kinds of connections: other stream protocols
//! (Multipath TCP, SCTP and their like), data in the first packet of a connection (TCP Fast Open), and io_uring, whose
//! operations no filter sees. UDP stays open, because names are resolved through it.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter,
};

const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
const INTERNET_PROTOCOLS: [i32; 5] =
    [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6];
/// Types of sockets whose usual protocol is none of those: SCTP, and DCCP.
const REFUSED_TYPES: [i32; 2] = [libc::SOCK_SEQPACKET, libc::SOCK_DCCP];
/// The bits of a socket's type without its flags.
const TYPE_MASK: u64 = 0xf;
/// Marks system calls of the x32 interface, which takes most numbers of the usual one.
const X32_BIT: i64 = 0x4000_0000;

/// A compiled filter.
pub(crate) struct NetworkFilter(BpfProgram);

impl NetworkFilter {
    pub fn new() -> io::Result<NetworkFilter> {
        compile().map(NetworkFilter).map_err(io::Error::other)
    }

    /// Applies the filter to the calling thread and everything that it starts, for good. It makes system calls only.
    pub fn enforce(&self) -> io::Result<()> {
        apply_filter(&self.0).map_err(|error| match error {
            Error::Prctl(error) | Error::Seccomp(error) => error,
            _ => io::ErrorKind::InvalidInput.into(),
        })
    }
}

fn compile() -> Result<BpfProgram, Error> {
    let mut rules = BTreeMap::new();
    rules.insert(libc::SYS_socket, socket_rules()?);
    let fast_open = libc::MSG_FASTOPEN as u64;
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        let has_flag = condition(flags, SeccompCmpOp::MaskedEq(fast_open), fast_open)?;
        rules.insert(call, vec![SeccompRule::new(vec![has_flag])?]);
    }
    // Without a condition the call is refused whatever its arguments are.
    rules.insert(libc::SYS_io_uring_setup, Vec::new());
    if cfg!(target_arch = "x86_64") {
        let mut of_x32: Vec<(i64, Vec<SeccompRule>)> =
            rules.iter().map(|(call, rules)| (call | X32_BIT, rules.clone())).collect();
        // These two have numbers of their own there.
        for (call, number) in [(libc::SYS_sendmsg, 518), (libc::SYS_sendmmsg, 538)] {
            of_x32.push((number | X32_BIT, rules[&call].clone()));
        }
        rules.extend(of_x32);
    }
    let architecture = std::env::consts::ARCH.try_into()?;
    let refuse = SeccompAction::Errno(libc::EACCES as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?;
    Ok(filter.try_into()?)
}

/// Returns which sockets are refused.
fn socket_rules() -> Result<Vec<SeccompRule>, Error> {
    let is_not = |argument: u8, known: &[i32]| -> Result<Vec<SeccompCondition>, Error> {
        known.iter().map(|value| condition(argument, SeccompCmpOp::Ne, *value as u64)).collect()
    };
    let mut rules = vec![SeccompRule::new(is_not(0, &FAMILIES)?)?];
    for family in [libc::AF_INET, libc::AF_INET6] {
        let is_family = condition(0, SeccompCmpOp::Eq, family as u64)?;
        let mut other_protocol = is_not(2, &INTERNET_PROTOCOLS)?;
        other_protocol.push(is_family.clone());
        rules.push(SeccompRule::new(other_protocol)?);
        for refused in REFUSED_TYPES {
            let is_type = condition(1, SeccompCmpOp::MaskedEq(TYPE_MASK), refused as u64)?;
            rules.push(SeccompRule::new(vec![is_family.clone(), is_type])?);
        }
    }
    Ok(rules)
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, Error> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?)
}
