//! Unix sockets whose other end may hang.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Connects without waiting: the queue of one who serves nobody any more is full, and would hold us for as long as that
/// lasts.
///
/// # Errors
/// IO; `WouldBlock` if the queue is full.
pub fn connect_at_once(path: &Path) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&fd, &address)?;
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use rustix::net::{bind, listen};

    use super::*;

    #[test]
    fn a_queue_that_nobody_serves_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        assert_eq!(connect_at_once(&path).unwrap_err().kind(), ErrorKind::NotFound);
        let fd = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        bind(&fd, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&fd, 1).unwrap();
        let mut waiting = Vec::new();
        let full = loop {
            match connect_at_once(&path) {
                Ok(stream) if waiting.len() < 64 => waiting.push(stream),
                end => break end,
            }
        };
        assert_eq!(full.unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(!waiting.is_empty());
    }
}
