//! The child's side: one line of JSON says which key; then a line of hex in, a line of hex out.

use std::io::{self, BufRead, Write};

use super::HsmKey;
use super::device::Device;
use crate::key::KeyFileError;

/// The hidden subcommand.
pub const COMMAND: &str = "sign-pkcs11";

/// Longest line; messages are a few hundred bytes.
const LINE: u64 = 16 << 10;

/// Serves until the end of the input. Ends at the first thing that fails: a new process begins with a new session.
///
/// # Errors
/// The HSM's, in its words; also written as a line `error …`.
pub fn helper(input: impl BufRead, output: impl Write) -> Result<(), String> {
    let mut output = output;
    let result = serve(input, &mut output);
    if let Err(e) = &result {
        // On one line.
        let text = e.replace(['\r', '\n'], " ");
        writeln!(output, "error {text}")
            .and_then(|()| output.flush())
            .ok();
    }
    result
}

fn serve(mut input: impl BufRead, output: &mut impl Write) -> Result<(), String> {
    let Some(first) = line(&mut input)? else {
        return Ok(());
    };
    let key: HsmKey = serde_json::from_str(&first).map_err(|e| e.to_string())?;
    let words = |e: KeyFileError| e.to_string();
    let device = Device::open(&key.options, &key.options.pin().map_err(words)?, false).map_err(words)?;
    let handle = device
        .find(&key.id().map_err(words)?, &key.public_key)
        .map_err(words)?;
    say(output, "ready")?;
    while let Some(text) = line(&mut input)? {
        let message = hex::decode(text.trim_end()).map_err(|e| e.to_string())?;
        let signature = device.sign(handle, &message).map_err(words)?;
        say(output, &hex::encode(signature))?;
    }
    Ok(())
}

fn line(input: &mut impl BufRead) -> Result<Option<String>, String> {
    let mut text = String::new();
    let n = io::Read::take(&mut *input, LINE)
        .read_line(&mut text)
        .map_err(|e| e.to_string())?;
    Ok((n > 0).then_some(text))
}

fn say(output: &mut impl Write, text: &str) -> Result<(), String> {
    writeln!(output, "{text}")
        .and_then(|()| output.flush())
        .map_err(|e| e.to_string())
}
