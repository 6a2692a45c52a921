//! A TPM's word for the machine that registers: its attestation key signs a quote of the PCRs over what the registration
//! signs. The key is a primary of the endorsement hierarchy, made anew from the TPM's own seed each time: nothing is
//! provisioned, no slot is used, and a new system on the machine, or a cleared owner, has the same one. What it proves
//! and what not: docs/adr/0009-keys-in-devices.md.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpc_schema::gateway::{Attestation, Pcr};
use sha2::{Digest as _, Sha256};

use super::tpm::Tpm;
use super::{KeyFileError, Place};

/// Restricted: the TPM signs with it nothing but what it says of itself.
const ATTRIBUTES: &str = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|noda|restricted|sign";
/// Of a SHA-256 bank.
const PCR_BYTES: usize = 32;

/// A quote of `pcrs` (rising) over `data`, by the TPM that seals the key.
///
/// # Errors
/// The key is not in a TPM, or the TPM does not do what it is asked.
pub fn attest(place: &Place, data: &[u8; 32], pcrs: &[u8]) -> Result<Attestation, KeyFileError> {
    let mut quoted = Quoted::begin(place)?;
    let list: Vec<String> = pcrs.iter().map(u8::to_string).collect();
    let [message, signature, values] = ["quote.msg", "quote.sig", "quote.pcrs"].map(|n| quoted.tpm.path(n));
    let key = quoted.key.clone();
    quoted.tpm.run(
        "tpm2_quote",
        &[
            "-Q",
            "-c",
            &key,
            "-l",
            &format!("sha256:{}", list.join(",")),
            "-q",
            &hex::encode(data),
            "-m",
            &message,
            "-s",
            &signature,
            "-f",
            "plain",
            "-o",
            &values,
            "-F",
            "values",
            "-g",
            "sha256",
        ],
        &[],
    )?;
    let values = read(&values)?;
    let (values, rest) = values.as_chunks::<PCR_BYTES>();
    if values.len() != pcrs.len() || !rest.is_empty() {
        let what = "the TPM has no SHA-256 bank with these PCRs (agent.tpm.pcrs)";
        return Err(KeyFileError::Device(what.into()));
    }
    let pcr = |(index, value): (&u8, &[u8; PCR_BYTES])| Pcr {
        index: *index,
        sha256: hex::encode(value),
    };
    Ok(Attestation {
        public: STANDARD.encode(&quoted.public),
        quote: STANDARD.encode(read(&message)?),
        signature: STANDARD.encode(read(&signature)?),
        pcrs: pcrs.iter().zip(values).map(pcr).collect(),
    })
}

/// How the provider knows the TPM's attestation key: hex of the SHA-256 of its public area (its Name in the TPM's terms).
///
/// # Errors
/// As [`attest`].
pub fn attestation_key(place: &Place) -> Result<String, KeyFileError> {
    Quoted::begin(place).map(|q| hex::encode(Sha256::digest(&q.public)))
}

/// A TPM with its attestation key.
struct Quoted {
    tpm: Tpm,
    /// Its context.
    key: String,
    /// `TPMT_PUBLIC`.
    public: Vec<u8>,
}

impl Quoted {
    fn begin(place: &Place) -> Result<Self, KeyFileError> {
        let Place::Tpm2 { tcti, .. } = place else {
            let what = format!(
                "only a TPM gives a quote, and the key is {place}; move it (virtengine-node-agent key migrate --store tpm) or set \
                 agent.tpm.quote: false"
            );
            return Err(KeyFileError::Device(what));
        };
        let mut tpm = Tpm::reach(tcti)?;
        let [key, public] = ["attest.ctx", "attest.pub"].map(|n| tpm.path(n));
        let make = [
            "-Q",
            "-C",
            "e",
            "-G",
            "ecc256:ecdsa-sha256:null",
            "-a",
            ATTRIBUTES,
            "-c",
            &key,
        ];
        tpm.run("tpm2_createprimary", &make, &[])?;
        tpm.run(
            "tpm2_readpublic",
            &["-Q", "-c", &key, "-f", "tss", "-o", &public],
            &[],
        )?;
        let sized = read(&public)?;
        // TPM2B_PUBLIC: two bytes of length, and the area.
        let public = sized.get(2..).unwrap_or_default().to_vec();
        Ok(Self { tpm, key, public })
    }
}

fn read(path: &str) -> Result<Vec<u8>, KeyFileError> {
    fs::read(path).map_err(|e| KeyFileError::Device(format!("tpm2-tools wrote no {path}: {e}")))
}
