use std::io::{ErrorKind, IsTerminal as _, Write as _, stdout};
use std::time::Duration;

use hpc_schema::id::NodeId;
use rustix::termios::tcgetwinsize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use super::args::Whose;
use super::desk::Desk;
use super::nodes::{HEAD, cells};
use super::output::{Output, Unwritten, table};
use crate::admin::NodeRow;
use crate::clock;

/// Not more often than this: each look reads the store.
const SHORTEST: Duration = Duration::from_millis(200);

/// Shows nodes again and again until Ctrl-C, SIGTERM, or nobody reads any more.
pub(super) async fn run(
    desk: &Desk,
    node: Option<&NodeId>,
    every: Duration,
    out: Output,
) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut resized = signal(SignalKind::window_change())?;
    let screen = out.is_text() && stdout().is_terminal();
    if screen {
        write("\x1b[?25l\x1b[2J")?;
    }
    let shown = loop {
        let rows = match desk.nodes(node).await {
            Ok(rows) => rows,
            Err(e) => break Err(e),
        };
        if rows.is_empty()
            && let Some(node) = node
            && let Err(e) = unknown(desk, node).await
        {
            break Err(e);
        }
        let written = if screen {
            let size = tcgetwinsize(stdout()).map(|s| (usize::from(s.ws_col), usize::from(s.ws_row)));
            write(&frame(&rows, size.unwrap_or((80, 24))))
        } else if out.is_text() {
            let lines = table(&rows, &HEAD, cells).join("\n");
            write(&format!("-- {}\n{lines}\n", clock::now()))
        } else {
            out.compact(&rows)
        };
        if let Err(e) = written {
            break if nobody_reads(&e) { Ok(()) } else { Err(e) };
        }
        tokio::select! {
            () = sleep(every.max(SHORTEST)) => {}
            _ = resized.recv() => {}
            _ = interrupt.recv() => break Ok(()),
            _ = terminate.recv() => break Ok(()),
        }
    };
    if screen {
        write("\x1b[?25h\n")?;
    }
    shown
}

/// Says of a node that is not on record what `node show` does.
async fn unknown(desk: &Desk, node: &NodeId) -> anyhow::Result<()> {
    let whose = Whose {
        node_id: node.clone(),
        cluster_id: None,
    };
    desk.node(&whose, 0).await?;
    Ok(())
}

fn write(text: &str) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(written.map_err(Unwritten)?)
}

/// Whoever read has seen enough.
fn nobody_reads(e: &anyhow::Error) -> bool {
    e.downcast_ref::<Unwritten>()
        .is_some_and(|Unwritten(e)| e.kind() == ErrorKind::BrokenPipe)
}

/// One screen: each line over the one that was there and cut to the width; what does not fit is counted.
fn frame(rows: &[NodeRow], (width, height): (usize, usize)) -> String {
    let behind = rows.iter().filter(|r| r.lag > 0).count();
    let mut lines = vec![
        format!("nodes: {}, lagging: {behind}   {}", rows.len(), clock::now()),
        String::new(),
    ];
    lines.extend(table(rows, &HEAD, cells));
    let room = height.max(4) - 1;
    if lines.len() > room {
        let hidden = lines.len() - (room - 1);
        lines.truncate(room - 1);
        lines.push(format!("… and {hidden} more; name a node, or use: node list"));
    }
    let mut text = String::from("\x1b[H");
    for line in lines {
        text.extend(line.chars().take(width));
        text.push_str("\x1b[K\n");
    }
    text.push_str("\x1b[J");
    text
}

#[cfg(test)]
mod tests {
    use hpc_schema::node::NodeState;

    use super::*;

    fn row(n: u32) -> NodeRow {
        NodeRow {
            cluster_id: "hpc-cluster-1".parse().unwrap(),
            node_id: format!("node-{n:04}").parse().unwrap(),
            state: NodeState::Active,
            disabled: None,
            epoch: 1,
            last_received: 10 + n,
            received_at: None,
            last_on_chain: 10,
            lag: n,
            last_heartbeat_on_chain: None,
            address: None,
            probe_port: None,
            probe_address: None,
            last_refusal: None,
        }
    }

    #[test]
    fn a_screen_never_is_wider_or_higher_than_the_terminal_and_counts_what_it_hides() {
        let rows: Vec<_> = (0..100).map(row).collect();
        let text = frame(&rows, (40, 10));
        let lines: Vec<&str> = text.trim_start_matches("\x1b[H").split("\x1b[K\n").collect();
        assert!(lines.len() <= 10, "{}", lines.len());
        assert!(lines.iter().all(|l| l.chars().count() <= 40), "{text}");
        assert!(
            text.contains("… and 95 more") && text.contains("lagging: 99"),
            "{text}"
        );
        let text = frame(&rows[..2], (200, 24));
        assert!(text.contains("node-0001") && !text.contains("more"), "{text}");
    }
}
