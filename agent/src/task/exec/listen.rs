use std::io;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::task::failure::Failure;
use crate::task::stop::Stop;

/// How often it is asked whether the task was taken back.
const SLICE: Duration = Duration::from_millis(50);

/// Why nothing more is heard of a program.
pub(super) enum Why {
    Late,
    Stopped(Failure),
    Io(io::Error),
}

/// How it ended, and what is kept of both its outputs.
pub(super) type Ended = (ExitStatus, Vec<u8>, Vec<u8>);

/// Listens until it has ended; each piece of its output goes to `sink` as it comes.
pub(super) fn listen(
    child: &mut Child,
    stop: &Stop,
    (limit, keep): (Duration, usize),
    sink: &mut dyn FnMut(&[u8]),
) -> Result<Ended, Why> {
    let end = Instant::now().checked_add(limit);
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        stop.check().map_err(Why::Stopped)?;
        if end.is_some_and(|e| Instant::now() >= e) {
            return Err(Why::Late);
        }
        if stdout.is_none()
            && stderr.is_none()
            && let Some(status) = child.try_wait().map_err(Why::Io)?
        {
            return Ok((status, out, err));
        }
        let slice = Timespec::try_from(SLICE).map_err(|_| Why::Late)?;
        let mut fds = Vec::with_capacity(2);
        fds.extend(stdout.as_ref().map(|s| PollFd::new(s, PollFlags::IN)));
        fds.extend(stderr.as_ref().map(|s| PollFd::new(s, PollFlags::IN)));
        match poll(&mut fds, Some(&slice)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Why::Io(e.into())),
        }
        let mut ready = fds.iter().map(|f| !f.revents().is_empty());
        let out_ready = stdout.is_some() && ready.next() == Some(true);
        let err_ready = stderr.is_some() && ready.next() == Some(true);
        drop(fds);
        if out_ready && !chunk(stdout.as_mut(), &mut out, keep, sink).map_err(Why::Io)? {
            stdout = None;
        }
        if err_ready && !chunk(stderr.as_mut(), &mut err, keep, &mut |_| {}).map_err(Why::Io)? {
            stderr = None;
        }
    }
}

/// Keeps at most `keep` bytes in all; false at the end of the stream.
fn chunk(
    stream: Option<&mut impl io::Read>,
    into: &mut Vec<u8>,
    keep: usize,
    sink: &mut dyn FnMut(&[u8]),
) -> io::Result<bool> {
    let mut buffer = [0u8; 8192];
    let Some(stream) = stream else { return Ok(false) };
    match stream.by_ref().read(&mut buffer) {
        Ok(n) => {
            let room = keep.saturating_sub(into.len());
            let said = buffer.get(..n).unwrap_or_default();
            sink(said);
            into.extend(said.iter().take(room));
            Ok(n > 0)
        }
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(e) => Err(e),
    }
}

pub(super) fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Ends it with all of its group.
pub(super) fn kill(child: &mut Child) {
    if let Some(group) = pid_of(child) {
        // Gone already: as good as killed.
        kill_process_group(group, Signal::KILL).ok();
    }
    // A process that hangs in the kernel is left to the kernel.
    for _ in 0..100 {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
