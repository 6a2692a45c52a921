//! The child's side: one line of JSON says which key; then a line of hex in, a line of hex out.

use std::io::{self, BufRead, Write};

use zeroize::Zeroizing;

use crate::device::Device;
use crate::{HsmError, Key, Options};

/// The hidden subcommand of a program that uses this crate; it calls [`serve`].
pub const COMMAND: &str = "sign-pkcs11";

/// Longest line; messages are a few hundred bytes.
const LINE: u64 = 16 << 10;

/// Serves until the end of the input. Ends at the first thing that fails: a new process begins with a new session.
///
/// # Errors
/// The HSM's, in its words; also written as a line `error …`.
pub fn serve(
    input: impl BufRead,
    output: impl Write,
    pin: impl FnOnce(&Options) -> Result<Zeroizing<String>, String>,
) -> Result<(), String> {
    let mut output = output;
    let result = signs(input, &mut output, pin);
    if let Err(e) = &result {
        // Whoever asked may have gone.
        say(&mut output, &e.to_line()).ok();
    }
    result.map_err(|e| e.to_string())
}

fn signs(
    mut input: impl BufRead,
    output: &mut impl Write,
    pin: impl FnOnce(&Options) -> Result<Zeroizing<String>, String>,
) -> Result<(), HsmError> {
    let Some(first) = line(&mut input)? else {
        return Ok(());
    };
    let key: Key = serde_json::from_str(&first).map_err(|e| HsmError::Key(e.to_string()))?;
    let id = hex::decode(&key.id).map_err(|_| HsmError::Key("the key file's id is not hex".into()))?;
    let device = Device::open(&key.options, &pin(&key.options).map_err(HsmError::Key)?, false)?;
    let (handle, public) = device.pair(key.curve, &id)?;
    if hex::encode(&public) != key.public {
        let text = format!("the HSM's key with id {} is not {}", key.id, key.public);
        return Err(HsmError::Key(text));
    }
    say(output, "ready")?;
    while let Some(text) = line(&mut input)? {
        let message = hex::decode(text.trim_end()).map_err(|e| HsmError::Device(e.to_string()))?;
        let signature = device.sign(key.curve, handle, &message)?;
        say(output, &hex::encode(signature))?;
    }
    Ok(())
}

fn line(input: &mut impl BufRead) -> Result<Option<String>, HsmError> {
    let mut text = String::new();
    let n = io::Read::take(&mut *input, LINE)
        .read_line(&mut text)
        .map_err(|e| HsmError::Device(e.to_string()))?;
    Ok((n > 0).then_some(text))
}

fn say(output: &mut impl Write, text: &str) -> Result<(), HsmError> {
    writeln!(output, "{text}")
        .and_then(|()| output.flush())
        .map_err(|e| HsmError::Device(e.to_string()))
}
