//! Anchored digests.

use hpc_schema::registry::{AnchorView, AnchorsAnswer, BlockRef};
use serde::Serialize;

use super::words::{block, more};
use super::{Align, Lines, Table, Text};

/// One anchor; in JSON its members stand at the top, beside `block`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AnchorAt {
    #[serde(flatten)]
    pub(crate) anchor: AnchorView,
    pub(crate) block: BlockRef,
}

impl Text for AnchorAt {
    fn text(&self) -> String {
        let AnchorView {
            kind,
            digest,
            sender,
            height,
            time,
        } = &self.anchor;
        let mut lines = Lines::new();
        lines
            .line("kind", kind)
            .line("digest", digest)
            .line("sender", sender);
        lines.line("height", height).line("time", time);
        block(&mut lines, &self.block);
        lines.finish()
    }
}

impl Text for AnchorsAnswer {
    fn text(&self) -> String {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("HEIGHT", Right),
            ("TIME", Left),
            ("KIND", Left),
            ("DIGEST", Left),
            ("SENDER", Left),
        ]);
        for AnchorView {
            kind,
            digest,
            sender,
            height,
            time,
        } in &self.anchors
        {
            table.row([
                height.to_string(),
                time.to_string(),
                kind.clone(),
                digest.clone(),
                sender.clone(),
            ]);
        }
        table.finish()
    }

    fn remark(&self) -> Option<String> {
        more(self.anchors.is_empty(), "anchors", self.next.as_deref())
    }
}
