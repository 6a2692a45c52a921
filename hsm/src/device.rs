//! One logged-in session of a PKCS#11 library.

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::types::AuthPin;

use crate::{Curve, HsmError, Options};

impl Curve {
    /// `CKA_EC_PARAMS`: the OID; of Ed25519 also the name that PKCS#11 3.0 allows.
    fn params(self) -> &'static [&'static [u8]] {
        match self {
            // 1.3.101.112
            Self::Ed25519 => &[&[0x06, 0x03, 0x2b, 0x65, 0x70], b"\x13\x0cedwards25519"],
            // 1.3.132.0.10
            Self::Secp256k1 => &[&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a]],
        }
    }

    fn key_type(self) -> KeyType {
        match self {
            Self::Ed25519 => KeyType::EC_EDWARDS,
            Self::Secp256k1 => KeyType::EC,
        }
    }

    fn generation(self) -> (Mechanism<'static>, &'static str) {
        match self {
            Self::Ed25519 => (
                Mechanism::EccEdwardsKeyPairGen,
                "Ed25519 key (CKM_EC_EDWARDS_KEY_PAIR_GEN)",
            ),
            Self::Secp256k1 => (Mechanism::EccKeyPairGen, "secp256k1 key (CKM_EC_KEY_PAIR_GEN)"),
        }
    }

    fn signing(self) -> Mechanism<'static> {
        match self {
            Self::Ed25519 => Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Pure)),
            Self::Secp256k1 => Mechanism::Ecdsa,
        }
    }

    /// The public key of a `CKA_EC_POINT`: an OCTET STRING by the standard; some tokens leave its head away.
    fn public(self, point: &[u8]) -> Option<Vec<u8>> {
        // As it is first: a point may begin like the head of an OCTET STRING, but then its length is another.
        self.bare(point).or_else(|| match point {
            [0x04, length, rest @ ..] if usize::from(*length) == rest.len() => self.bare(rest),
            _ => None,
        })
    }

    fn bare(self, point: &[u8]) -> Option<Vec<u8>> {
        match (self, point) {
            (Self::Ed25519, key) if key.len() == 32 => Some(key.to_vec()),
            (Self::Secp256k1, [2 | 3, x @ ..]) if x.len() == 32 => Some(point.to_vec()),
            (Self::Secp256k1, [4, both @ ..]) if both.len() == 64 => {
                let (x, y) = both.split_at(32);
                let parity = 2 | (y.last()? & 1);
                Some([&[parity], x].concat())
            }
            _ => None,
        }
    }
}

/// A session with the token.
#[derive(Debug)]
pub(crate) struct Device {
    session: Session,
    // Ends after the session.
    _library: Pkcs11,
}

fn failed(what: &str) -> impl Fn(Error) -> HsmError {
    move |e| HsmError::Device(format!("{what}: {e}"))
}

impl Device {
    /// Loads the library, finds the token, logs in.
    pub(crate) fn open(options: &Options, pin: &str, write: bool) -> Result<Self, HsmError> {
        let shown = options.module.display();
        let library = Pkcs11::new(&options.module).map_err(|e| {
            HsmError::Key(format!(
                "the PKCS#11 library {shown} cannot be loaded; correct `module`: {e}"
            ))
        })?;
        library
            .initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK))
            .map_err(failed("the PKCS#11 library does not start"))?;
        let slots = library
            .get_slots_with_initialized_token()
            .map_err(failed("the HSM's slots cannot be read"))?;
        let slot = slots
            .into_iter()
            .find(|slot| {
                library
                    .get_token_info(*slot)
                    .is_ok_and(|info| info.label().trim_end() == options.token)
            })
            .ok_or_else(|| {
                HsmError::Device(format!(
                    "{shown} has no token {:?}; see: pkcs11-tool --module {shown} --list-token-slots",
                    options.token
                ))
            })?;
        let session = if write {
            library.open_rw_session(slot)
        } else {
            library.open_ro_session(slot)
        };
        let session = session.map_err(failed("the HSM opens no session"))?;
        session
            .login(UserType::User, Some(&AuthPin::from(pin.to_owned())))
            .map_err(|e| refused(&e))?;
        Ok(Self {
            session,
            _library: library,
        })
    }

    /// Makes a key pair; the private half is sensitive and cannot be extracted.
    pub(crate) fn generate(&self, curve: Curve, id: &[u8], label: &str) -> Result<Vec<u8>, HsmError> {
        let (mechanism, what) = curve.generation();
        let mut last = None;
        for params in curve.params() {
            let both = [
                Attribute::Token(true),
                Attribute::KeyType(curve.key_type()),
                Attribute::Id(id.to_vec()),
                Attribute::Label(label.as_bytes().to_vec()),
            ];
            let mut public = both.to_vec();
            public.extend([
                Attribute::Private(false),
                Attribute::Verify(true),
                Attribute::EcParams(params.to_vec()),
            ]);
            let mut private = both.to_vec();
            private.extend([
                Attribute::Private(true),
                Attribute::Sensitive(true),
                Attribute::Extractable(false),
                Attribute::Sign(true),
            ]);
            match self.session.generate_key_pair(&mechanism, &public, &private) {
                Ok((handle, _)) => return self.public(curve, handle),
                Err(e) => last = Some(e),
            }
        }
        let why = last.map_or_else(String::new, |e| e.to_string());
        Err(HsmError::Device(format!("the HSM makes no {what}: {why}")))
    }

    /// The private half with this id, and the public one.
    pub(crate) fn pair(&self, curve: Curve, id: &[u8]) -> Result<(ObjectHandle, Vec<u8>), HsmError> {
        let one = |class| {
            let template = [Attribute::Class(class), Attribute::Id(id.to_vec())];
            let found = self
                .session
                .find_objects(&template)
                .map_err(failed("the HSM's objects cannot be read"))?;
            found.first().copied().ok_or_else(|| {
                HsmError::Key(format!(
                    "the HSM has no key with id {}; was the token initialised anew?",
                    hex::encode(id)
                ))
            })
        };
        let private = one(ObjectClass::PRIVATE_KEY)?;
        Ok((private, self.public(curve, one(ObjectClass::PUBLIC_KEY)?)?))
    }

    /// A signature as the mechanism gives it.
    pub(crate) fn sign(&self, curve: Curve, key: ObjectHandle, message: &[u8]) -> Result<Vec<u8>, HsmError> {
        self.session
            .sign(&curve.signing(), key, message)
            .map_err(failed("the HSM does not sign"))
    }

    fn public(&self, curve: Curve, handle: ObjectHandle) -> Result<Vec<u8>, HsmError> {
        let attributes = self
            .session
            .get_attributes(handle, &[AttributeType::EcPoint])
            .map_err(failed("the HSM does not show the public key"))?;
        let point = attributes.into_iter().find_map(|a| match a {
            Attribute::EcPoint(point) => Some(point),
            _ => None,
        });
        curve
            .public(&point.unwrap_or_default())
            .ok_or_else(|| HsmError::Key("the HSM's public key is none of its curve".into()))
    }
}

fn refused(e: &Error) -> HsmError {
    let text = format!("the HSM does not take the PIN: {e}");
    match e {
        Error::Pkcs11(
            RvError::PinIncorrect
            | RvError::PinInvalid
            | RvError::PinLenRange
            | RvError::PinExpired
            | RvError::PinLocked
            | RvError::UserPinNotInitialized,
            _,
        ) => HsmError::Pin(text),
        _ => HsmError::Device(text),
    }
}

/// The HSM makes a key pair that cannot leave it; gives the public half.
///
/// # Errors
/// [`HsmError`].
pub fn make(options: &Options, pin: &str, curve: Curve, id: &[u8], label: &str) -> Result<Vec<u8>, HsmError> {
    Device::open(options, pin, true)?.generate(curve, id, label)
}

/// The public half of a key pair that the HSM has already.
///
/// # Errors
/// [`HsmError`]; without a private half of the same id it is no key pair.
pub fn find(options: &Options, pin: &str, curve: Curve, id: &[u8]) -> Result<Vec<u8>, HsmError> {
    Device::open(options, pin, false)?
        .pair(curve, id)
        .map(|(_, public)| public)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read_with_and_without_their_head_and_compressed() {
        let (x, y) = ([7u8; 32], [9u8; 32]);
        let raw = [&[4u8][..], &x, &y].concat();
        let wrapped = [&[4u8, 65][..], &raw].concat();
        let compressed = [&[3u8][..], &x].concat();
        for point in [&raw, &wrapped, &compressed] {
            assert_eq!(Curve::Secp256k1.public(point).as_ref(), Some(&compressed));
        }
        // It begins as an OCTET STRING of 63 bytes would.
        let x = [63u8; 32];
        let raw = [&[4u8][..], &x, &y].concat();
        let compressed = [&[3u8][..], &x].concat();
        assert_eq!(Curve::Secp256k1.public(&raw), Some(compressed));
        let wrapped = [&[4u8, 32][..], &x].concat();
        for point in [&x[..], &wrapped] {
            assert_eq!(Curve::Ed25519.public(point).as_deref(), Some(&x[..]));
        }
        for bad in [&[][..], &x[1..], &raw[1..]] {
            assert_eq!(Curve::Secp256k1.public(bad), None);
        }
        assert_eq!(Curve::Ed25519.public(&raw), None);
    }
}
