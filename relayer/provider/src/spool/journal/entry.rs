//! One report in a group: numbers big-endian, texts and bytes behind their length.

use super::super::accept::Accept;

/// Appends a report.
pub(in super::super) fn put(to: &mut Vec<u8>, report: &Accept) {
    put_bytes(to, report.cluster_id.as_str().as_bytes());
    put_bytes(to, report.node_id.as_str().as_bytes());
    to.extend_from_slice(&report.epoch.to_be_bytes());
    to.extend_from_slice(&report.sequence.to_be_bytes());
    to.extend_from_slice(&report.received_at.to_be_bytes());
    to.extend_from_slice(&report.report);
    to.extend_from_slice(&report.signature);
    to.extend_from_slice(&report.section_digest);
    put_bytes(to, &report.section);
    to.push(u8::from(report.full.is_some()));
    put_bytes(to, report.full.as_deref().unwrap_or_default());
}

/// Nothing here is near 4 GiB: a heartbeat has at most 64 KiB.
fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    to.extend_from_slice(&length.to_be_bytes());
    to.extend_from_slice(bytes);
}

/// The reports of a group; none if this is not what [`put`] wrote.
pub(in super::super) fn read_all(mut entries: &[u8]) -> Option<Vec<Accept>> {
    let mut all = Vec::new();
    while !entries.is_empty() {
        all.push(read(&mut entries)?);
    }
    Some(all)
}

fn read(from: &mut &[u8]) -> Option<Accept> {
    let cluster_id = read_id(from)?;
    let node_id = read_id(from)?;
    let epoch = u64::from_be_bytes(take(from)?);
    let sequence = u32::from_be_bytes(take(from)?);
    let received_at = u64::from_be_bytes(take(from)?);
    let (report, signature, section_digest) = (take(from)?, take(from)?, take(from)?);
    let section = bytes(from)?.to_vec();
    let [kept] = take(from)?;
    let full = bytes(from)?;
    Some(Accept {
        full: (kept == 1).then(|| full.to_vec()),
        section,
        section_digest,
        ..Accept::new(
            (cluster_id, node_id),
            (epoch, sequence),
            (report, signature),
            received_at,
        )
    })
}

fn read_id<T: TryFrom<String>>(from: &mut &[u8]) -> Option<T> {
    let text = String::from_utf8(bytes(from)?.to_vec()).ok()?;
    T::try_from(text).ok()
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*taken)
}

fn bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(u32::from_be_bytes(take(from)?)).ok()?;
    let (taken, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(taken)
}
