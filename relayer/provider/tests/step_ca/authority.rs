use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::{Certificate, Client, Identity};
use serde_json::{Value, json};
use virtengine_provider::clock;

use crate::site::eventually;

/// What is signed of a request: subject and names as docs/protocol.md, section 1.2, has them.
const TEMPLATE: &str = r#"{"subject": {"commonName": {{ toJson .Insecure.CR.Subject.CommonName }},
 "serialNumber": {{ toJson .Insecure.CR.Subject.SerialNumber }}}, "sans": {{ toJson .SANs }},
 "keyUsage": ["digitalSignature"], "extKeyUsage": ["serverAuth", "clientAuth"]}"#;

/// A running step-ca with a root in its safe, an intermediate that issues, and a provisioner whose key the test holds.
pub(crate) struct StepCa {
    dir: tempfile::TempDir,
    child: Option<Child>,
    url: String,
}

impl Drop for StepCa {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn der_number(der: &[u8], at: &mut usize) -> Vec<u8> {
    assert_eq!(der[*at], 2);
    let length = usize::from(der[*at + 1]);
    let number = &der[*at + 2..*at + 2 + length];
    *at += 2 + length;
    let digits: Vec<u8> = number.iter().copied().skip_while(|b| *b == 0).collect();
    [vec![0; 32 - digits.len()], digits].concat()
}

impl StepCa {
    pub(crate) async fn start() -> Self {
        let program = std::env::var("HPC_TEST_STEP_CA").expect("HPC_TEST_STEP_CA: the program step-ca");
        let dir = tempfile::tempdir().unwrap();
        let port = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let url = format!("https://localhost:{port}");
        let mut ca = Self {
            dir,
            child: None,
            url,
        };
        ca.write(
            "ca.ext",
            "basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\n",
        );
        for name in ["root", "inter", "provisioner"] {
            ca.key(name);
        }
        let usage = "keyUsage=critical,keyCertSign";
        let root = [
            "req",
            "-x509",
            "-new",
            "-key",
            "root.key",
            "-subj",
            "/CN=Site root",
            "-days",
            "30",
            "-addext",
            usage,
        ];
        ca.openssl(&[&root[..], &["-out", "root.pem"]].concat());
        ca.openssl(&[
            "req",
            "-new",
            "-key",
            "inter.key",
            "-subj",
            "/CN=step-ca of the site",
            "-out",
            "inter.csr",
        ]);
        let by = [
            "-CA",
            "root.pem",
            "-CAkey",
            "root.key",
            "-CAcreateserial",
            "-extfile",
            "ca.ext",
        ];
        ca.openssl(
            &[
                &[
                    "x509",
                    "-req",
                    "-in",
                    "inter.csr",
                    "-days",
                    "20",
                    "-out",
                    "inter.pem",
                ],
                &by[..],
            ]
            .concat(),
        );
        let config = json!({
            "root": ca.path("root.pem"), "crt": ca.path("inter.pem"), "key": ca.path("inter.key"),
            "address": format!("127.0.0.1:{port}"), "dnsNames": ["localhost"], "logger": { "format": "text" },
            "db": { "type": "badgerv2", "dataSource": ca.path("db") },
            "authority": { "provisioners": [{
                "type": "JWK", "name": "site", "key": ca.provisioner(),
                "options": { "x509": { "template": TEMPLATE } },
            }] },
        });
        ca.write("ca.json", &config.to_string());
        let log = std::fs::File::create(ca.path("log")).unwrap();
        let child = Command::new(program)
            .arg(ca.path("ca.json"))
            .stdout(Stdio::null())
            .stderr(log)
            .env("HOME", ca.dir.path())
            .env("STEPPATH", ca.dir.path())
            .spawn();
        ca.child = Some(child.unwrap());
        let http = ca.http(None);
        eventually("step-ca", async || {
            let health = http.get(format!("{}/health", ca.url)).send().await;
            health.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
        ca
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.path(file), text).unwrap();
    }

    fn run(&self, args: &[&str]) -> Vec<u8> {
        let out = Command::new("openssl")
            .args(args)
            .current_dir(self.dir.path())
            .output()
            .expect("openssl is needed");
        assert!(
            out.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        out.stdout
    }

    fn openssl(&self, args: &[&str]) -> String {
        String::from_utf8(self.run(args)).unwrap()
    }

    fn key(&self, name: &str) {
        let file = format!("{name}.key");
        let curve = "ec_paramgen_curve:P-256";
        self.openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", curve, "-out", &file]);
    }

    /// The public key with which it checks the tokens of this test.
    fn provisioner(&self) -> Value {
        let der = self.run(&["pkey", "-in", "provisioner.key", "-pubout", "-outform", "DER"]);
        let point = &der[der.len() - 64..];
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({ "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "site",
                "x": part(&point[..32]), "y": part(&point[32..]) })
    }

    /// A token for one certificate.
    fn token(&self, subject: &str, names: &[&str]) -> String {
        let now = clock::now().0;
        let id = hex::encode(clock::random::<16>().unwrap());
        let head = json!({ "alg": "ES256", "kid": "site", "typ": "JWT" });
        let claims = json!({
            "aud": format!("{}/1.0/sign", self.url), "iss": "site", "sub": subject, "sans": names, "jti": id,
            "iat": now, "nbf": now - 5, "exp": now + 120,
        });
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&head), encode(&claims));
        self.write("token", &signed);
        let der = self.run(&["dgst", "-sha256", "-sign", "provisioner.key", "token"]);
        let mut at = 2;
        let signature = [der_number(&der, &mut at), der_number(&der, &mut at)].concat();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn http(&self, identity: Option<String>) -> Client {
        drop(rustls::crypto::ring::default_provider().install_default());
        let root = Certificate::from_pem(self.root().as_bytes()).unwrap();
        let mut http = Client::builder().tls_certs_only([root]).no_proxy();
        if let Some(pem) = identity {
            http = http.identity(Identity::from_pem(pem.as_bytes()).unwrap());
        }
        http.build().unwrap()
    }

    async fn ask(&self, http: Client, path: &str, body: &Value) -> String {
        let answer = http
            .post(format!("{}{path}", self.url))
            .json(body)
            .send()
            .await
            .unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        let log = std::fs::read_to_string(self.path("log")).unwrap();
        assert!(status.is_success(), "{path}: {status} {text}\n{log}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let part = |name: &str| answer[name].as_str().unwrap().trim().to_owned() + "\n";
        part("crt") + &part("ca")
    }

    pub(crate) fn root(&self) -> String {
        std::fs::read_to_string(self.path("root.pem")).unwrap()
    }

    /// A certificate with the way to the root, and its key.
    pub(crate) async fn issue(&self, name: &str, subject: &str, names: &[&str]) -> (String, String) {
        self.key(name);
        let (key, csr) = (format!("{name}.key"), format!("{name}.csr"));
        self.openssl(&["req", "-new", "-key", &key, "-subj", subject, "-out", &csr]);
        let request = std::fs::read_to_string(self.path(&csr)).unwrap();
        let common = subject.split('/').find_map(|p| p.strip_prefix("CN=")).unwrap();
        let body = json!({ "csr": request, "ott": self.token(common, names) });
        let chain = self.ask(self.http(None), "/1.0/sign", &body).await;
        (chain, std::fs::read_to_string(self.path(&key)).unwrap())
    }

    /// The next certificate of the same names, asked for with the one that there is.
    pub(crate) async fn renew(&self, chain: &str, key: &str) -> String {
        let http = self.http(Some(format!("{key}{chain}")));
        self.ask(http, "/1.0/renew", &json!({})).await
    }

    /// Its serial number as openssl writes it.
    pub(crate) fn serial(&self, chain: &str) -> String {
        self.write("shown.pem", chain);
        let text = self.openssl(&["x509", "-in", "shown.pem", "-noout", "-serial"]);
        text.trim().trim_start_matches("serial=").to_owned()
    }
}
