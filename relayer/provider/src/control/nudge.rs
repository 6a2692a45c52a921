use std::io;
use std::os::unix::net::UnixDatagram as Sync;

use tokio::net::UnixDatagram;

use crate::home::Home;

/// Hears that another process has decided something: the daemon then looks at once.
#[derive(Debug)]
pub struct Nudges(Option<UnixDatagram>);

impl Nudges {
    /// Listens on a socket in the daemon's directory, which is its owner's alone. Without it decisions are found a
    /// quarter of a second later.
    #[must_use]
    pub fn listen(home: &Home) -> Self {
        let path = home.wake_socket();
        // Of a daemon that ended; the directory's lock says that no other runs.
        let bound = match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => UnixDatagram::bind(&path),
        };
        if let Err(e) = &bound {
            tracing::warn!(error = %e, path = %path.display(), "decisions are found late: no socket");
        }
        Self(bound.ok())
    }

    /// Ends when there was a nudge; words that came together count as one.
    pub async fn heard(&self) {
        let Some(socket) = &self.0 else {
            return std::future::pending().await;
        };
        let mut word = [0; 8];
        if socket.recv(&mut word).await.is_err() {
            // Not again at once, and for ever.
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        while socket.try_recv(&mut word).is_ok() {}
    }
}

/// Lets the daemon look at once, if it runs.
pub fn nudge(home: &Home) {
    if let Ok(socket) = Sync::unbound() {
        // It does not run, or has plenty to look at.
        drop(socket.set_nonblocking(true));
        drop(socket.send_to(b"look", home.wake_socket()));
    }
}
