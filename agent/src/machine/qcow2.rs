//! The header of a qcow2 image, as far as it can harm: what would make QEMU open another file. Pure.
//! Layout: QEMU's `docs/interop/qcow2.txt`; all numbers big-endian.

/// Bytes of the header that are looked at.
pub(super) const HEADER: usize = 104;
const MAGIC: &[u8] = b"QFI\xfb";
/// Incompatible feature bits that are sound: dirty refcounts, zstd, extended L2. The bits of a corrupt image and of an
/// external data file are not.
const SOUND_FEATURES: u64 = 0b1_1001;

/// Why an image is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Qcow2Error {
    /// Other magic bytes, or too short.
    #[error("is no qcow2 image; name its format in image_format")]
    NotQcow2,
    /// It would be read as something else than it says.
    #[error("is a qcow2 image and image_format says raw; name its format")]
    NotRaw,
    /// Neither 2 nor 3.
    #[error("is a qcow2 image of version {0}; make it anew with qemu-img convert -O qcow2")]
    Version(u32),
    /// It would read another file of this host.
    #[error("names a backing file; make it whole with qemu-img convert -O qcow2")]
    Backing,
    /// Its data would be another file of this host, or it is damaged.
    #[error(
        "has incompatible features {0:#x} (an external data file, or it is damaged); make it anew with qemu-img convert -O qcow2"
    )]
    Features(u64),
    /// No key for it is here.
    #[error("is encrypted, and keys are not taken; decrypt it")]
    Encrypted,
    /// No disk has this size.
    #[error("has a virtual size of {0} bytes, which is no disk's")]
    Size(u64),
}

/// Virtual size in bytes of a qcow2 image that stands for itself alone.
///
/// # Errors
/// See [`Qcow2Error`].
pub(super) fn virtual_size(header: &[u8]) -> Result<u64, Qcow2Error> {
    if !is_qcow2(header) {
        return Err(Qcow2Error::NotQcow2);
    }
    let version = u32_at(header, 4)?;
    if !matches!(version, 2 | 3) {
        return Err(Qcow2Error::Version(version));
    }
    if u64_at(header, 8)? != 0 || u32_at(header, 16)? != 0 {
        return Err(Qcow2Error::Backing);
    }
    let size = u64_at(header, 24)?;
    if size == 0 || size > 1 << 50 {
        return Err(Qcow2Error::Size(size));
    }
    if u32_at(header, 32)? != 0 {
        return Err(Qcow2Error::Encrypted);
    }
    if version == 3 {
        let features = u64_at(header, 72)?;
        if features & !SOUND_FEATURES != 0 {
            return Err(Qcow2Error::Features(features));
        }
    }
    Ok(size)
}

/// Whether bytes begin as a qcow2 image does.
#[must_use]
pub(super) fn is_qcow2(header: &[u8]) -> bool {
    header.starts_with(MAGIC)
}

fn u32_at(header: &[u8], offset: usize) -> Result<u32, Qcow2Error> {
    let bytes = header.get(offset..).and_then(<[u8]>::first_chunk::<4>);
    bytes.map(|b| u32::from_be_bytes(*b)).ok_or(Qcow2Error::NotQcow2)
}

fn u64_at(header: &[u8], offset: usize) -> Result<u64, Qcow2Error> {
    let bytes = header.get(offset..).and_then(<[u8]>::first_chunk::<8>);
    bytes.map(|b| u64::from_be_bytes(*b)).ok_or(Qcow2Error::NotQcow2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut h = vec![0u8; HEADER];
        h[..4].copy_from_slice(MAGIC);
        h[7] = 3;
        h[24..32].copy_from_slice(&(1u64 << 30).to_be_bytes());
        change(&mut h);
        h
    }

    #[test]
    fn an_image_that_stands_for_itself_is_taken_and_one_that_opens_other_files_is_not() {
        assert_eq!(virtual_size(&header(|_| {})), Ok(1 << 30));
        assert_eq!(virtual_size(&header(|h| h[7] = 2)), Ok(1 << 30));
        assert_eq!(virtual_size(&header(|h| h[79] = 1)), Ok(1 << 30));
        assert_eq!(virtual_size(&header(|h| h[15] = 1)), Err(Qcow2Error::Backing));
        assert_eq!(virtual_size(&header(|h| h[19] = 9)), Err(Qcow2Error::Backing));
        assert_eq!(virtual_size(&header(|h| h[79] = 4)), Err(Qcow2Error::Features(4)));
        assert_eq!(virtual_size(&header(|h| h[79] = 2)), Err(Qcow2Error::Features(2)));
        assert_eq!(virtual_size(&header(|h| h[35] = 1)), Err(Qcow2Error::Encrypted));
        assert_eq!(virtual_size(&header(|h| h[7] = 1)), Err(Qcow2Error::Version(1)));
        assert_eq!(
            virtual_size(&header(|h| h[24] = 0x80)),
            Err(Qcow2Error::Size((1 << 63) + (1 << 30)))
        );
        assert_eq!(virtual_size(b"# Disk DescriptorFile"), Err(Qcow2Error::NotQcow2));
        assert_eq!(virtual_size(MAGIC), Err(Qcow2Error::NotQcow2));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic_or_take_a_backing_file(mut bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            for (b, m) in bytes.iter_mut().zip(MAGIC) { *b = *m; }
            if virtual_size(&bytes).is_ok() {
                prop_assert_eq!(&bytes[8..20], &[0u8; 12]);
            }
        }
    }
}
