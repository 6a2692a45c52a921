//! Whole block devices of slots: whether nobody uses one, and what is read back after a wipe.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use hpc_schema::task::{DeviceProof, HostPath};
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};

use crate::files::{FileError, at};

/// Bytes that are read at a place.
const CHUNK: u64 = 64 << 10;
/// Places at each end of a device, and between them.
const ENDS: u64 = 16;
const DRAWN: u64 = 96;
/// What direct reads are aligned to.
const ALIGNED: usize = 4096;

fn open(path: &Path, write: bool, flags: OFlags) -> io::Result<(File, u64)> {
    let flags = i32::try_from((flags | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let mut file = OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(flags)
        .open(path)?;
    if !file.metadata()?.file_type().is_block_device() {
        return Err(io::Error::other("is no block device"));
    }
    let bytes = file.seek(SeekFrom::End(0))?;
    Ok((file, bytes))
}

/// Bytes of a device that nobody uses: no file system is mounted from it or a part of it, no array, no swap, no other
/// program has it for itself. The kernel says so, not a table.
///
/// # Errors
/// IO; it is in use (`EBUSY`), or no block device.
pub fn unused(device: &HostPath) -> Result<u64, FileError> {
    let path = Path::new(device.as_str());
    // Of a block device EXCL alone asks for it alone.
    let opened = open(path, true, OFlags::EXCL);
    opened
        .map(|(_, bytes)| bytes)
        .map_err(at("use, as nobody else does,", path))
}

/// Reads samples of a device past all caches: both ends, and places drawn from `plan`, so that they can be drawn again.
///
/// # Errors
/// IO.
pub fn sample(device: &HostPath, plan: &str) -> Result<DeviceProof, FileError> {
    let path = Path::new(device.as_str());
    let read = || -> io::Result<DeviceProof> {
        let (file, bytes) = open(path, false, OFlags::DIRECT)?;
        let mut buffer = vec![0u8; usize::try_from(CHUNK).unwrap_or(0).saturating_add(ALIGNED)];
        let skip = buffer.as_ptr().align_offset(ALIGNED);
        let mut hash = Sha256::new();
        let (mut sampled, mut zero) = (0u64, true);
        for offset in offsets(bytes, device.as_str(), plan) {
            hash.update(offset.to_be_bytes());
            let length = usize::try_from(CHUNK.min(bytes.saturating_sub(offset))).unwrap_or(0);
            let place = buffer
                .get_mut(skip..skip.saturating_add(length))
                .ok_or_else(|| io::Error::other("no room to read to"))?;
            file.read_exact_at(place, offset)?;
            zero &= place.iter().all(|b| *b == 0);
            sampled = sampled.saturating_add(u64::try_from(length).unwrap_or(0));
        }
        let sample_plan = hex::encode(hash.finalize());
        Ok(DeviceProof {
            device: device.clone(),
            bytes,
            sampled_bytes: sampled,
            zero,
            sample_plan: sample_plan.parse().map_err(|_| io::Error::other("no digest"))?,
        })
    };
    read().map_err(at("read back", path))
}

/// Where it is read, ascending, each place once.
fn offsets(bytes: u64, device: &str, plan: &str) -> Vec<u64> {
    let chunks = bytes.div_ceil(CHUNK);
    let mut all: Vec<u64> = (0..ENDS.min(chunks)).collect();
    all.extend(chunks.saturating_sub(ENDS)..chunks);
    for n in 0..DRAWN {
        let digest = Sha256::new()
            .chain_update("hpc-wipe-sample-v1\0")
            .chain_update(plan)
            .chain_update("\0")
            .chain_update(device)
            .chain_update(n.to_be_bytes())
            .finalize();
        let drawn = digest.iter().take(8).fold(0u64, |n, b| (n << 8) | u64::from(*b));
        all.extend(drawn.checked_rem(chunks));
    }
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(|c| c.saturating_mul(CHUNK)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn samples_lie_in_the_device_at_both_ends_and_are_drawn_the_same_again(bytes in 1u64..1 << 50, plan in "[a-z]{1,8}") {
            let all = offsets(bytes, "/dev/x", &plan);
            prop_assert!(all.iter().all(|o| *o < bytes));
            prop_assert_eq!(all[0], 0);
            prop_assert!(bytes - all[all.len() - 1] <= CHUNK);
            prop_assert_eq!(&offsets(bytes, "/dev/x", &plan), &all);
        }
    }

    #[test]
    fn what_is_no_block_device_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [0u8; 4096]).unwrap();
        let path: HostPath = path.to_str().unwrap().parse().unwrap();
        assert!(unused(&path).unwrap_err().to_string().contains("no block device"));
        assert!(sample(&path, "p").is_err());
    }
}
