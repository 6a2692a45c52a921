use std::io::{self, BufRead, Read as _, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest line: a result with what stands around it.
pub const MAX_LINE: u64 = 1 << 20;

/// The next word; none at the end.
///
/// # Errors
/// IO; a line that is too long or is not the JSON that is expected.
pub fn read_line<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.take(MAX_LINE).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    let Some(text) = line.strip_suffix(b"\n") else {
        return Err(io::Error::other("a line is cut off or too long"));
    };
    serde_json::from_slice(text).map(Some).map_err(io::Error::from)
}

/// Writes a word.
///
/// # Errors
/// IO.
pub fn write_line<T: Serialize>(to: &mut impl Write, word: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::domain::Input;

    #[test]
    fn words_come_out_as_they_went_in_and_what_is_too_long_or_cut_off_is_refused() {
        let mut bytes = Vec::new();
        write_line(&mut bytes, &Input::Hello).unwrap();
        write_line(&mut bytes, &Input::Keys { steps: Vec::new() }).unwrap();
        let mut reader = bytes.as_slice();
        assert!(matches!(read_line(&mut reader).unwrap(), Some(Input::Hello)));
        assert!(matches!(
            read_line(&mut reader).unwrap(),
            Some(Input::Keys { .. })
        ));
        assert!(read_line::<Input>(&mut reader).unwrap().is_none());
        assert!(read_line::<Input>(&mut &b"\"hello\""[..]).is_err());
        assert!(
            read_line::<Input>(&mut &b"\"stop\"\n"[..]).is_err(),
            "nobody outside stops the domain"
        );
        let long = vec![b'x'; usize::try_from(MAX_LINE).unwrap() + 1];
        assert!(read_line::<Input>(&mut long.as_slice()).is_err());
    }
}
