use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

type Count = Gauge<u64, AtomicU64>;

/// Labels of HTTP requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    /// Route, without ids.
    pub route: &'static str,
    /// HTTP status.
    pub status: u16,
}

/// Labels of heartbeats.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct HeartbeatLabels {
    /// `accepted`, or the code of the refusal.
    pub result: &'static str,
}

/// Labels of the calls of an endpoint of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EndpointLabels {
    /// Its address, without credentials.
    pub endpoint: String,
    /// Method.
    pub method: &'static str,
}

/// Labels of the contract's events.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EventLabels {
    /// Type, such as `hpc_node_transition`.
    pub event: &'static str,
}

/// Labels of ended reports.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReportLabels {
    /// `on_chain`, `refused`, `superseded`, `returned`.
    pub end: &'static str,
    /// Code of a refusal or notice, or empty.
    pub code: &'static str,
}

/// Labels of ended transactions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TxLabels {
    /// `reports`, `register`, `sweep`, `prune`.
    pub kind: &'static str,
    /// `included`, `failed`, `expired`, `consumed`.
    pub end: &'static str,
}

/// Counters and gauges of every stage.
#[derive(Debug, Default)]
pub struct Metrics {
    /// HTTP requests.
    pub requests: Family<RequestLabels, Counter>,
    /// Heartbeats by result.
    pub heartbeats: Family<HeartbeatLabels, Counter>,
    /// Open connections of agents.
    pub connections: Count,
    /// Connections closed because their place was needed.
    pub connections_evicted: Counter,
    /// TLS handshakes that failed.
    pub handshakes_failed: Counter,
    /// Seconds from the arrival of a heartbeat to its durable acceptance.
    pub accept_seconds: AcceptSeconds,
    /// Reports in the queue.
    pub waiting: Count,
    /// Reports in transactions that have not ended.
    pub bound: Count,
    /// Age of the oldest accepted report that SQLite has not taken in from the intake journal.
    pub intake_behind_seconds: Count,
    /// Age of the oldest report that has not ended.
    pub oldest_unsettled_seconds: Count,
    /// Reports by how they ended.
    pub reports: Family<ReportLabels, Counter>,
    /// Transactions signed.
    pub signed: Counter,
    /// Transactions by how they ended.
    pub transactions: Family<TxLabels, Counter>,
    /// Transactions on chain of which nothing can be proven yet.
    pub evidence_missing: Count,
    /// The chain's height as last seen.
    pub chain_height: Count,
    /// 1 if this gateway is the one that settles.
    pub settles: Count,
    /// The last block whose events have been taken in.
    pub events_height: Count,
    /// Events of the nodes served.
    pub events: Family<EventLabels, Counter>,
    /// Round trip to the chain's endpoint.
    pub chain_latency_ms: Count,
    /// How long an endpoint that answers other methods has left one unanswered.
    pub endpoint_unanswered_seconds: Family<EndpointLabels, Count>,
    /// Nodes on record.
    pub nodes: Count,
}

/// A histogram with its buckets.
#[derive(Debug)]
pub struct AcceptSeconds(pub Histogram);

impl Default for AcceptSeconds {
    fn default() -> Self {
        Self(Histogram::new([
            0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0,
        ]))
    }
}

impl Metrics {
    /// Counts an event of the contract.
    pub fn event(&self, event: &'static str) {
        self.events.get_or_create(&EventLabels { event }).inc();
    }

    /// The exposition in OpenMetrics text.
    #[must_use]
    pub fn expose(&self) -> String {
        let mut r = Registry::with_prefix("virtengine_provider");
        r.register("requests", "HTTP requests of agents", self.requests.clone());
        r.register("heartbeats", "Heartbeats by result", self.heartbeats.clone());
        r.register(
            "connections",
            "Open connections of agents",
            self.connections.clone(),
        );
        r.register(
            "connections_evicted",
            "Connections closed because their place was needed",
            self.connections_evicted.clone(),
        );
        r.register(
            "handshakes_failed",
            "TLS handshakes that failed",
            self.handshakes_failed.clone(),
        );
        r.register_with_unit(
            "accept",
            "From the arrival of a heartbeat to its durable acceptance",
            Unit::Seconds,
            self.accept_seconds.0.clone(),
        );
        r.register("reports_waiting", "Reports in the queue", self.waiting.clone());
        r.register(
            "reports_bound",
            "Reports in transactions that have not ended",
            self.bound.clone(),
        );
        r.register_with_unit(
            "intake_behind",
            "Age of the oldest accepted report that SQLite has not taken in from the intake journal",
            Unit::Seconds,
            self.intake_behind_seconds.clone(),
        );
        r.register_with_unit(
            "oldest_unsettled",
            "Age of the oldest report that has not ended",
            Unit::Seconds,
            self.oldest_unsettled_seconds.clone(),
        );
        r.register("reports", "Reports by how they ended", self.reports.clone());
        r.register("transactions_signed", "Transactions signed", self.signed.clone());
        r.register(
            "transactions",
            "Transactions by how they ended",
            self.transactions.clone(),
        );
        r.register(
            "evidence_missing",
            "Transactions on chain whose evidence for proofs is still to be gathered",
            self.evidence_missing.clone(),
        );
        r.register(
            "chain_height",
            "Height of the chain as last seen",
            self.chain_height.clone(),
        );
        r.register(
            "settles",
            "1 if this gateway is the one of its store that settles",
            self.settles.clone(),
        );
        r.register(
            "events_height",
            "The last block whose events have been taken in",
            self.events_height.clone(),
        );
        r.register("chain_events", "Events of the nodes served", self.events.clone());
        r.register(
            "chain_latency_ms",
            "Round trip to the chain's endpoint",
            self.chain_latency_ms.clone(),
        );
        r.register_with_unit(
            "endpoint_unanswered",
            "How long an endpoint of the chain that answers other methods has left one unanswered",
            Unit::Seconds,
            self.endpoint_unanswered_seconds.clone(),
        );
        r.register("nodes", "Nodes on record", self.nodes.clone());
        let mut text = String::new();
        // Writing to a String cannot fail.
        if encode(&mut text, &r).is_err() {
            text.clear();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_is_counted_in_openmetrics_text() {
        let m = Metrics::default();
        m.heartbeats
            .get_or_create(&HeartbeatLabels { result: "accepted" })
            .inc();
        m.transactions
            .get_or_create(&TxLabels {
                kind: "reports",
                end: "included",
            })
            .inc();
        m.oldest_unsettled_seconds.set(7);
        m.intake_behind_seconds.set(3);
        m.evidence_missing.set(2);
        let labels = EndpointLabels {
            endpoint: "http://a".to_owned(),
            method: "tx",
        };
        m.endpoint_unanswered_seconds.get_or_create(&labels).set(60);
        let text = m.expose();
        for line in [
            "virtengine_provider_heartbeats_total{result=\"accepted\"} 1",
            "virtengine_provider_transactions_total{kind=\"reports\",end=\"included\"} 1",
            "virtengine_provider_oldest_unsettled_seconds 7",
            "virtengine_provider_intake_behind_seconds 3",
            "virtengine_provider_evidence_missing 2",
            "virtengine_provider_endpoint_unanswered_seconds{endpoint=\"http://a\",method=\"tx\"} 60",
            "# EOF",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
