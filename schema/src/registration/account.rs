use ripemd::Ripemd160;
use sha2::{Digest, Sha256};

/// The 20 bytes of the Cosmos account that a compressed secp256k1 key controls: RIPEMD-160(SHA-256(key)).
#[must_use]
pub fn account_of(public_key: &[u8; 33]) -> [u8; 20] {
    Ripemd160::digest(Sha256::digest(public_key)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_hash160_of_the_key() {
        // The generator point's well-known hash160.
        let g = hex::decode("0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798").unwrap();
        assert_eq!(
            hex::encode(account_of(&g.try_into().unwrap())),
            "751e76e8199196d454941c45d1b3a323f1433bd6"
        );
    }
}
