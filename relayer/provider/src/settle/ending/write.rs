use std::collections::BTreeMap;

use hpc_chain::settle::BatchId;
use hpc_schema::code::Code;
use hpc_schema::id::{ClusterId, NodeId};

use super::{Ending, Fate, RegisterFate};
use crate::db::Conn;
use crate::enrol;
use crate::ops::{Metrics, ReportLabels};
use crate::registry::Registry;
use crate::spool::{self, EndedAs};
use crate::store::StoreError;

/// Writes the ends; part of the commit that also stores the machine's state. A report that cannot wait again has ended.
pub(in crate::settle) async fn write(
    conn: &mut Conn,
    batch: BatchId,
    ending: &mut Ending,
    height: Option<u64>,
    now_ms: u64,
) -> Result<(), StoreError> {
    match ending {
        Ending::Reports(fates) => {
            for (item, (member, fate)) in (0u32..).zip(fates) {
                match *fate {
                    // All of these at once, below.
                    Fate::Ended(EndedAs::OnChain, None) if height.is_some() => continue,
                    Fate::Ended(ended, code) => {
                        let end = spool::End {
                            ended,
                            code,
                            batch: Some(batch.0),
                            height,
                        };
                        spool::end(&mut *conn, member, &end, now_ms).await?;
                    }
                    Fate::Returned => {
                        if let Some(end) = spool::return_member(&mut *conn, member, now_ms).await? {
                            *fate = Fate::Ended(end.ended, end.code);
                        }
                    }
                }
                spool::unbind_item(&mut *conn, batch.0, item).await?;
            }
            if let Some(height) = height {
                spool::end_bound_on_chain(&mut *conn, batch.0, height, now_ms).await?;
            }
            spool::unbind(conn, batch.0).await
        }
        Ending::Register(fates) => {
            for (r, fate) in fates {
                match fate {
                    RegisterFate::OnChain(epoch) => {
                        enrol::record_on_chain(&mut *conn, r.id, *epoch, now_ms).await?;
                    }
                    RegisterFate::Refused(code, detail) => {
                        enrol::record_refused(&mut *conn, r.id, *code, detail, now_ms).await?;
                    }
                    RegisterFate::Returned => {}
                }
            }
            enrol::release(conn, batch.0, now_ms).await
        }
        Ending::Nothing => Ok(()),
    }
}

/// Counts the ends, tells the registry about refusals, and gives the nodes that changed on chain.
pub(in crate::settle) fn announce(
    ending: &Ending,
    registry: &Registry,
    metrics: &Metrics,
) -> BTreeMap<ClusterId, Vec<NodeId>> {
    let mut touched: BTreeMap<ClusterId, Vec<NodeId>> = BTreeMap::new();
    match ending {
        Ending::Reports(fates) => {
            for (m, fate) in fates {
                let (end, code) = match fate {
                    Fate::Ended(EndedAs::OnChain, code) => ("on_chain", *code),
                    Fate::Ended(EndedAs::Refused, code) => ("refused", *code),
                    Fate::Ended(EndedAs::Superseded, code) => ("superseded", *code),
                    Fate::Returned => ("returned", None),
                };
                if let Fate::Ended(EndedAs::Refused, Some(code)) = fate {
                    tracing::warn!(cluster = %m.cluster_id, node = %m.node_id, sequence = m.sequence, %code,
                        "report ended as refused; {}", code.remedy());
                    registry.refused(&m.cluster_id, &m.node_id, *code, m.sequence);
                }
                let labels = ReportLabels {
                    end,
                    code: code.map_or("", Code::as_str),
                };
                metrics.reports.get_or_create(&labels).inc();
                touched
                    .entry(m.cluster_id.clone())
                    .or_default()
                    .push(m.node_id.clone());
            }
        }
        Ending::Register(fates) => {
            for (r, fate) in fates {
                match fate {
                    RegisterFate::OnChain(epoch) => {
                        tracing::info!(cluster = %r.cluster_id, node = %r.node_id, epoch, "node registered on chain");
                        touched
                            .entry(r.cluster_id.clone())
                            .or_default()
                            .push(r.node_id.clone());
                    }
                    RegisterFate::Refused(code, detail) => {
                        tracing::warn!(cluster = %r.cluster_id, node = %r.node_id, %code, "registration refused: {detail}");
                    }
                    RegisterFate::Returned => {}
                }
            }
        }
        Ending::Nothing => {}
    }
    touched
}
