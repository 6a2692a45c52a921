//! Pages of query results.

use cosmrs::proto::cosmos::base::query::v1beta1::{PageRequest, PageResponse};

use super::{Status, grpc};
use crate::tx::TxError;

/// Entries a page, unless the request says otherwise.
const DEFAULT: u64 = 100;
/// Entries a page, at most.
const MAX: u64 = 1_000;

/// Takes the page that was asked for from entries in key order. The total is counted only if asked for.
pub(super) fn take<T>(
    entries: impl Iterator<Item = (Vec<u8>, T)>,
    request: Option<&PageRequest>,
) -> Result<(Vec<T>, PageResponse), TxError> {
    let request = request.cloned().unwrap_or_default();
    if request.reverse {
        return Err(grpc(
            Status::InvalidArgument,
            "the embedded chain does not page backwards",
        ));
    }
    if request.offset > 0 && !request.key.is_empty() {
        return Err(grpc(
            Status::InvalidArgument,
            "invalid request, either offset or key is expected, got both",
        ));
    }
    let limit = if request.limit == 0 {
        DEFAULT
    } else {
        request.limit.min(MAX)
    };
    let mut taken = Vec::new();
    let mut response = PageResponse::default();
    let (mut seen, mut in_page) = (0u64, 0u64);
    for (key, value) in entries {
        let position = seen;
        seen = seen.saturating_add(1);
        if key < request.key || position < request.offset {
            continue;
        }
        if in_page < limit {
            in_page = in_page.saturating_add(1);
            taken.push(value);
        } else {
            if response.next_key.is_empty() {
                response.next_key = key;
            }
            if !request.count_total {
                break;
            }
        }
    }
    if request.count_total {
        response.total = seen;
    }
    Ok((taken, response))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_one_another_by_key_and_count_on_request() {
        let entries = || (0u8..5).map(|n| (vec![n], n));
        let request = PageRequest {
            limit: 2,
            count_total: true,
            ..PageRequest::default()
        };
        let (first, response) = take(entries(), Some(&request)).unwrap();
        assert_eq!(
            (first, response.total, response.next_key.clone()),
            (vec![0, 1], 5, vec![2])
        );
        let request = PageRequest {
            key: response.next_key,
            limit: 9,
            ..PageRequest::default()
        };
        let (rest, response) = take(entries(), Some(&request)).unwrap();
        assert_eq!((rest, response.next_key), (vec![2, 3, 4], vec![]));
    }
}
