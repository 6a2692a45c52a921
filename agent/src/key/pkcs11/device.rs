//! One logged-in session of a PKCS#11 library.

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::mechanism::Mechanism;
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::types::AuthPin;
use hpc_schema::key::AgentKey;

use super::HsmOptions;
use crate::key::KeyFileError;

/// `CKA_EC_PARAMS` of Ed25519: the OID 1.3.101.112, and the name that PKCS#11 3.0 also allows.
const CURVES: [&[u8]; 2] = [&[0x06, 0x03, 0x2b, 0x65, 0x70], b"\x13\x0cedwards25519"];

/// A session with the token.
#[derive(Debug)]
pub(super) struct Device {
    session: Session,
    // Ends after the session.
    _library: Pkcs11,
}

fn failed(what: &str) -> impl Fn(cryptoki::error::Error) -> KeyFileError {
    move |e| KeyFileError::Device(format!("{what}: {e}"))
}

impl Device {
    /// Loads the library, finds the token, logs in.
    pub(super) fn open(options: &HsmOptions, pin: &str, write: bool) -> Result<Self, KeyFileError> {
        let shown = options.module.display();
        let library = Pkcs11::new(&options.module).map_err(failed(&format!(
            "the PKCS#11 library {shown} cannot be loaded; correct `module`"
        )))?;
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
                KeyFileError::Device(format!(
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
            .map_err(failed("the HSM does not take the PIN"))?;
        Ok(Self {
            session,
            _library: library,
        })
    }

    /// Makes a key pair; the private half is sensitive and cannot be extracted.
    pub(super) fn generate(&self, id: &[u8]) -> Result<AgentKey, KeyFileError> {
        let mut last = None;
        for curve in CURVES {
            let both = [
                Attribute::Token(true),
                Attribute::KeyType(KeyType::EC_EDWARDS),
                Attribute::Id(id.to_vec()),
                Attribute::Label(b"virtengine-node-agent".to_vec()),
            ];
            let mut public = both.to_vec();
            public.extend([
                Attribute::Private(false),
                Attribute::Verify(true),
                Attribute::EcParams(curve.to_vec()),
            ]);
            let mut private = both.to_vec();
            private.extend([
                Attribute::Private(true),
                Attribute::Sensitive(true),
                Attribute::Extractable(false),
                Attribute::Sign(true),
            ]);
            match self
                .session
                .generate_key_pair(&Mechanism::EccEdwardsKeyPairGen, &public, &private)
            {
                Ok((handle, _)) => return self.public(handle),
                Err(e) => last = Some(e),
            }
        }
        let why = last.map_or_else(String::new, |e| e.to_string());
        Err(KeyFileError::Device(format!(
            "the HSM makes no Ed25519 key (CKM_EC_EDWARDS_KEY_PAIR_GEN): {why}"
        )))
    }

    /// The private key with this id, whose public half is `public`.
    pub(super) fn find(&self, id: &[u8], public: &AgentKey) -> Result<ObjectHandle, KeyFileError> {
        let one = |class| {
            let template = [Attribute::Class(class), Attribute::Id(id.to_vec())];
            let found = self
                .session
                .find_objects(&template)
                .map_err(failed("the HSM's objects cannot be read"))?;
            found.first().copied().ok_or_else(|| {
                KeyFileError::Device(format!(
                    "the HSM has no key with id {}; was the token initialised anew?",
                    hex::encode(id)
                ))
            })
        };
        let private = one(ObjectClass::PRIVATE_KEY)?;
        if self.public(one(ObjectClass::PUBLIC_KEY)?)? != *public {
            return Err(KeyFileError::Device(format!(
                "the HSM's key with id {} is not {public}",
                hex::encode(id)
            )));
        }
        Ok(private)
    }

    /// Ed25519 over `message`.
    pub(super) fn sign(&self, key: ObjectHandle, message: &[u8]) -> Result<Vec<u8>, KeyFileError> {
        let mechanism = Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Pure));
        self.session
            .sign(&mechanism, key, message)
            .map_err(failed("the HSM does not sign"))
    }

    fn public(&self, handle: ObjectHandle) -> Result<AgentKey, KeyFileError> {
        let attributes = self
            .session
            .get_attributes(handle, &[AttributeType::EcPoint])
            .map_err(failed("the HSM does not show the public key"))?;
        let point = attributes.into_iter().find_map(|a| match a {
            Attribute::EcPoint(point) => Some(point),
            _ => None,
        });
        // An OCTET STRING by the standard; some tokens leave its head away.
        let point = point.unwrap_or_default();
        let bytes = point.strip_prefix(&[0x04, 0x20]).unwrap_or(&point);
        <[u8; 32]>::try_from(bytes)
            .ok()
            .and_then(|bytes| AgentKey::from_bytes(bytes).ok())
            .ok_or_else(|| KeyFileError::Device("the HSM's public key is no sound Ed25519 key".into()))
    }
}
