//! Endpoints that answer some methods and leave others unanswered: what is said of them.

use hpc_chain::rpc::{Client, Unanswered};

use crate::ops::{EndpointLabels, Metrics};

/// What is wrong with an endpoint that shows its blocks; a gauge for each method that it leaves unanswered.
pub(super) fn partial(client: &Client, metrics: &Metrics) -> Option<String> {
    let all = client.unanswered();
    for one in &all {
        let labels = EndpointLabels {
            endpoint: client.name().to_owned(),
            method: one.method,
        };
        metrics
            .endpoint_unanswered_seconds
            .get_or_create(&labels)
            .set(one.seconds);
    }
    words(client.name(), &all)
}

fn words(endpoint: &str, all: &[Unanswered]) -> Option<String> {
    let why: Vec<&str> = all.iter().map(|one| one.why.as_str()).collect();
    let why = (!why.is_empty()).then(|| why.join("; "))?;
    Some(format!(
        "{endpoint} of chain.rpc answers some calls and not others: {why}; look at that node, and at a proxy before it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_answers_in_part_is_told_with_each_method_and_why() {
        assert_eq!(words("http://a", &[]), None);
        let one = |method, why: &str| Unanswered {
            method,
            seconds: 60,
            why: why.to_owned(),
        };
        let all = [
            one("tx", "no answer to tx within 10 ms"),
            one("block", "unreadable answer to block: HTTP 404"),
        ];
        let said = words("http://a", &all).unwrap();
        for part in [
            "http://a of chain.rpc",
            "no answer to tx within 10 ms; unreadable answer to block: HTTP 404",
        ] {
            assert!(said.contains(part), "{said}");
        }
    }
}
