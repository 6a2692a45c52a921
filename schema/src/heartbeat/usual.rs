//! Reads a request as agents write it in one pass, its payload along with the rest.

use super::raw::Payload;
use super::reading::{Object, Own, first};
use super::whole;
use crate::command::Acknowledgement;

/// The parts of a body whose members stand in their usual order with nothing between, if nothing is wrong with it. None says
/// nothing about it.
pub(super) fn read<Auth: Object>(body: &[u8]) -> Option<(Payload<'_>, Auth, Vec<Acknowledgement>)> {
    let body = str::from_utf8(body).ok()?;
    let sent = body
        .strip_prefix(r#"{"heartbeat":"#)
        .filter(|sent| sent.starts_with('{'))?;
    let (heartbeat, text, rest) = whole::first(sent)?;
    let (Own(auth), _, rest) = first(rest.strip_prefix(r#","auth":"#)?)?;
    let (acknowledgements, rest) = match rest.strip_prefix(r#","acknowledgements":"#) {
        Some(rest) => {
            let (list, _, rest) = first::<Option<Vec<Acknowledgement>>>(rest)?;
            (list.unwrap_or_default(), rest)
        }
        None => (Vec::new(), rest),
    };
    let after = rest.strip_prefix('}')?;
    after
        .bytes()
        .all(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r'))
        .then(|| (Payload::read(text, heartbeat), auth, acknowledgements))
}
