//! Host functions: real addresses and cryptography, with gas counted.

use cosmwasm_std::testing::MockApi;
use cosmwasm_std::{
    Addr, Api, CanonicalAddr, HashFunction, RecoverPubkeyError, StdResult, VerificationError,
};

use crate::address::PREFIX;
use crate::gas::{Meter, crypto};

/// cosmwasm-std's native implementation (bech32 and cosmwasm-crypto, the crate that wasmd's virtual machine
/// uses) behind the chain's prefix.
pub(super) struct HostApi {
    inner: MockApi,
    meter: Meter,
}

impl HostApi {
    pub(super) fn new(meter: Meter) -> Self {
        Self {
            inner: MockApi::default().with_prefix(PREFIX),
            meter,
        }
    }
}

impl Api for HostApi {
    fn addr_validate(&self, human: &str) -> StdResult<Addr> {
        self.meter.add(crypto::ADDRESS);
        self.inner.addr_validate(human)
    }

    fn addr_canonicalize(&self, human: &str) -> StdResult<CanonicalAddr> {
        self.meter.add(crypto::ADDRESS);
        self.inner.addr_canonicalize(human)
    }

    fn addr_humanize(&self, canonical: &CanonicalAddr) -> StdResult<Addr> {
        self.meter.add(crypto::ADDRESS);
        self.inner.addr_humanize(canonical)
    }

    fn secp256k1_verify(&self, hash: &[u8], signature: &[u8], key: &[u8]) -> Result<bool, VerificationError> {
        self.meter.add(crypto::SECP256K1_VERIFY);
        self.inner.secp256k1_verify(hash, signature, key)
    }

    fn secp256k1_recover_pubkey(
        &self,
        hash: &[u8],
        sig: &[u8],
        param: u8,
    ) -> Result<Vec<u8>, RecoverPubkeyError> {
        self.meter.add(crypto::SECP256K1_RECOVER);
        self.inner.secp256k1_recover_pubkey(hash, sig, param)
    }

    fn secp256r1_verify(&self, hash: &[u8], signature: &[u8], key: &[u8]) -> Result<bool, VerificationError> {
        self.meter.add(crypto::SECP256R1_VERIFY);
        self.inner.secp256r1_verify(hash, signature, key)
    }

    fn secp256r1_recover_pubkey(
        &self,
        hash: &[u8],
        sig: &[u8],
        param: u8,
    ) -> Result<Vec<u8>, RecoverPubkeyError> {
        self.meter.add(crypto::SECP256R1_RECOVER);
        self.inner.secp256r1_recover_pubkey(hash, sig, param)
    }

    fn bls12_381_aggregate_g1(&self, g1s: &[u8]) -> Result<[u8; 48], VerificationError> {
        self.meter.add(crypto::bls_aggregate_g1(g1s.len() / 48));
        self.inner.bls12_381_aggregate_g1(g1s)
    }

    fn bls12_381_aggregate_g2(&self, g2s: &[u8]) -> Result<[u8; 96], VerificationError> {
        self.meter.add(crypto::bls_aggregate_g2(g2s.len() / 96));
        self.inner.bls12_381_aggregate_g2(g2s)
    }

    fn bls12_381_pairing_equality(
        &self,
        ps: &[u8],
        qs: &[u8],
        r: &[u8],
        s: &[u8],
    ) -> Result<bool, VerificationError> {
        self.meter.add(crypto::bls_pairing(ps.len() / 48));
        self.inner.bls12_381_pairing_equality(ps, qs, r, s)
    }

    fn bls12_381_hash_to_g1(
        &self,
        function: HashFunction,
        msg: &[u8],
        dst: &[u8],
    ) -> Result<[u8; 48], VerificationError> {
        self.meter.add(crypto::BLS_HASH_G1);
        self.inner.bls12_381_hash_to_g1(function, msg, dst)
    }

    fn bls12_381_hash_to_g2(
        &self,
        function: HashFunction,
        msg: &[u8],
        dst: &[u8],
    ) -> Result<[u8; 96], VerificationError> {
        self.meter.add(crypto::BLS_HASH_G2);
        self.inner.bls12_381_hash_to_g2(function, msg, dst)
    }

    fn ed25519_verify(
        &self,
        message: &[u8],
        signature: &[u8],
        key: &[u8],
    ) -> Result<bool, VerificationError> {
        self.meter.add(crypto::ED25519_VERIFY);
        self.inner.ed25519_verify(message, signature, key)
    }

    fn ed25519_batch_verify(
        &self,
        messages: &[&[u8]],
        signatures: &[&[u8]],
        keys: &[&[u8]],
    ) -> Result<bool, VerificationError> {
        self.meter.add(crypto::ed25519_batch(signatures.len()));
        self.inner.ed25519_batch_verify(messages, signatures, keys)
    }

    fn debug(&self, message: &str) {
        tracing::debug!(target: "contract", "{message}");
    }
}
