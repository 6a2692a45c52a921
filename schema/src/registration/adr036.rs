use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// ADR-036 sign bytes of `data` for `signer`: the amino JSON that wallets sign. Hash with SHA-256,
/// then secp256k1 (64-byte r‖s).
#[must_use]
pub fn adr036_sign_bytes(signer: &str, data: &[u8]) -> Vec<u8> {
    let data = STANDARD.encode(data);
    format!(
        concat!(
            r#"{{"account_number":"0","chain_id":"","fee":{{"amount":[],"gas":"0"}},"memo":"","#,
            r#""msgs":[{{"type":"sign/MsgSignData","value":{{"data":"{data}","signer":"{signer}"}}}}],"sequence":"0"}}"#
        ),
        data = data,
        signer = signer
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_amino_json_of_the_adr() {
        let text = String::from_utf8(adr036_sign_bytes("wasm1abc", b"hi")).unwrap();
        assert_eq!(
            text,
            r#"{"account_number":"0","chain_id":"","fee":{"amount":[],"gas":"0"},"memo":"","msgs":[{"type":"sign/MsgSignData","value":{"data":"aGk=","signer":"wasm1abc"}}],"sequence":"0"}"#
        );
    }
}
