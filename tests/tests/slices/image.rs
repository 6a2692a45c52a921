//! Images that are fetched: over HTTPS from a host that the policy names, taken up again where they were cut off, bounded,
//! and of no use if their digest is another.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hpc_schema::task::TaskOutcome;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::guest::hex;
use super::host::{Slot, inside, left, provision, tenant};
use super::node::{Apart, task};
use super::phases::place;

/// A server that cuts its first answer off in the midst. Gives port and the requests that came.
fn server(body: Vec<u8>) -> (u16, Arc<AtomicUsize>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    fs::write("/run/image-ca.pem", certificate.pem()).unwrap();
    let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], secret)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let resumed = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&resumed);
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            let mut request = Vec::new();
            let mut byte = [0u8; 1];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                request.push(byte[0]);
            }
            let request = String::from_utf8_lossy(&request).to_ascii_lowercase();
            let range = request.lines().find_map(|l| {
                l.strip_prefix("range: bytes=")?
                    .strip_suffix('-')?
                    .parse::<usize>()
                    .ok()
            });
            let from = range.unwrap_or(0);
            let head = match range {
                Some(from) => {
                    seen.fetch_add(1, Ordering::AcqRel);
                    format!(
                        "206 Partial Content\r\nContent-Range: bytes {from}-{}/{}",
                        body.len() - 1,
                        body.len()
                    )
                }
                None => "200 OK".to_owned(),
            };
            let rest = &body[from..];
            let sent = if n == 0 { &rest[..rest.len() / 2] } else { rest };
            let head = format!(
                "HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                rest.len()
            );
            stream.write_all(head.as_bytes()).ok();
            stream.write_all(sent).ok();
            stream.conn.send_close_notify();
            stream.flush().ok();
        }
    });
    (port, resumed)
}

#[test]
fn an_image_is_fetched_resumed_and_of_no_use_if_it_is_another() {
    const NAME: &str = "image::an_image_is_fetched_resumed_and_of_no_use_if_it_is_another";
    inside(NAME, || {
        let slot = Slot::new(NAME);
        let (_, key) = tenant();
        let body: Vec<u8> = (0..3_000_000u32)
            .map(|n| u8::try_from(n % 251).unwrap())
            .collect();
        let digest = hex(&body);
        let (port, resumed) = server(body);
        let images = Path::new("/run/images");
        fs::create_dir_all(images).unwrap();
        let ask = |name: &str, host: &str, sha256: &str| -> Value {
            let mut all = provision(&slot, &key);
            all["image_path"] = json!(images.join(name));
            all["image_url"] = json!(format!("https://{host}/images/{name}"));
            all["image_sha256"] = json!(sha256);
            all
        };
        let host = format!("localhost:{port}");
        let allowed = format!(
            ", image_directories: [/run/images], image_hosts: ['{host}'], image_ca: /run/image-ca.pem, max_image_gib: 1"
        );
        let try_with = |name: &str, params: &Value, fault: &str| {
            let dir = place(name, "");
            let policy = fs::read_to_string(dir.join("policy.yaml")).unwrap();
            let old = policy
                .split("image_directories: [")
                .nth(1)
                .unwrap()
                .split(']')
                .next()
                .unwrap()
                .to_owned();
            let policy = policy
                .replace(&format!("image_directories: [{old}], "), "")
                .replace(
                    "reserve_memory_mib: 0",
                    &format!("reserve_memory_mib: 0{allowed}"),
                );
            fs::write(dir.join("policy.yaml"), policy).unwrap();
            let mut apart = Apart::start(&dir, fault);
            let make = task("task-1", "slice.vm_provision", params);
            apart.deliver(&make);
            let said = apart.result().expect("it was not to die");
            apart.kill();
            assert_eq!(said.outcome, TaskOutcome::Failed);
            let left = left(&dir.join("tasks"));
            assert!(left.is_empty(), "{name}: {left:?}");
            let there: Vec<_> = fs::read_dir(images)
                .unwrap()
                .map(|e| e.unwrap().file_name())
                .collect();
            assert!(there.is_empty(), "{name}: {there:?}");
            (said.code.unwrap_or_default(), said.detail.unwrap_or_default())
        };
        // Cut off once, whole and of its digest in the end: the phase after it is reached.
        let good = ask("good.img", &host, &digest);
        let (code, detail) = try_with("good", &good, "fails:image_digest_verify");
        assert_eq!(
            (code.as_str(), detail.contains("image_digest_verify was to fail")),
            ("task_failed", true),
            "{detail}"
        );
        assert_eq!(resumed.load(Ordering::Acquire), 1);
        // Trusted or not, the digest counts.
        let mut other = ask("other.img", &host, &"0".repeat(64));
        other["image_trusted"] = json!(true);
        let (code, detail) = try_with("other", &other, "none");
        assert_eq!(code, "digest_mismatch", "{detail}");
        let (code, detail) = try_with("elsewhere", &ask("a.img", "evil.example.com", &digest), "none");
        assert_eq!(code, "policy_denied", "{detail}");
        let mut outside = ask("a.img", &host, &digest);
        outside["image_path"] = json!("/run/elsewhere/a.img");
        let (code, detail) = try_with("outside", &outside, "none");
        assert_eq!(code, "policy_denied", "{detail}");
        assert!(!Path::new("/run/elsewhere").exists());
    });
}
