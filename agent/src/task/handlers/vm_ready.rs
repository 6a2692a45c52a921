//! Waits until a machine says on its serial console that it is ready.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::code::Code;
use serde_json::{Value, json};

use crate::machine::CONSOLE;
use crate::machine::qmp::{Qmp, QmpError};
use crate::task::context::Context;
use crate::task::effect::process::is_alive;
use crate::task::failure::Failure;

/// Between two looks; the console keeps 64 KiB meanwhile.
const LOOK: Duration = Duration::from_millis(200);

/// Waits for `line`, at most for `limit`.
pub(super) fn wait(
    context: &Context<'_>,
    qmp: &mut Qmp,
    (pid, start): (u32, u64),
    line: &str,
    limit: Duration,
) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut tail = Vec::new();
    loop {
        context.check()?;
        match read(qmp) {
            Ok(bytes) => {
                if shown(&mut tail, &bytes, line.as_bytes()) {
                    return Ok(());
                }
            }
            Err(_) if !is_alive(context.host(), pid, start) => {
                let what = "the machine ended before it said that it was ready";
                return Err(Failure::failed(what));
            }
            Err(e) => return Err(Failure::failed(e)),
        }
        if begun.elapsed() >= limit {
            let what = format!("ready_line did not appear on the serial console within {limit:?}");
            return Err(Failure::new(Code::TaskTimeout, what));
        }
        std::thread::sleep(LOOK);
    }
}

/// What has come on the console since the last look.
fn read(qmp: &mut Qmp) -> Result<Vec<u8>, QmpError> {
    let ask = json!({"device": "console", "size": CONSOLE, "format": "base64"});
    let answer = qmp.execute("ringbuf-read", Some(&ask))?;
    let text = match &answer {
        Value::String(text) => text.as_str(),
        _ => "",
    };
    STANDARD
        .decode(text)
        .map_err(|e| QmpError::Strange(e.to_string()))
}

/// Whether `line` stands in what came up to now; keeps what could be its beginning.
fn shown(tail: &mut Vec<u8>, bytes: &[u8], line: &[u8]) -> bool {
    tail.extend_from_slice(bytes);
    if tail.windows(line.len().max(1)).any(|w| w == line) {
        return true;
    }
    let cut = tail.len().saturating_sub(line.len());
    tail.drain(..cut);
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_line_is_found_however_it_is_cut(before in ".{0,40}", cuts in proptest::collection::vec(1usize..9, 1..60)) {
            let text = format!("{before}guest ready\r\n");
            let (mut tail, mut found, mut at) = (Vec::new(), false, 0);
            for cut in cuts.into_iter().chain(std::iter::repeat(3)) {
                let end = (at + cut).min(text.len());
                found |= shown(&mut tail, &text.as_bytes()[at..end], b"guest ready");
                at = end;
                if at == text.len() { break; }
            }
            prop_assert!(found);
            let mut none = Vec::new();
            prop_assert!(!shown(&mut none, before.as_bytes(), b"guest ready\r"));
        }
    }
}
