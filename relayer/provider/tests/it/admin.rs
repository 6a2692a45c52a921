//! The admin listener: the command line's operations over HTTP, for those who hold a credential.

use hpc_schema::gateway::heartbeat_path;
use hpc_schema::node::NodeState;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use virtengine_provider::clock;

use crate::agent::{Agent, client, problem};
use crate::site::{CLUSTER, Site, eventually};

/// A credential of this role, made by the program.
pub(crate) fn credential(site: &Site, role: &str, expires: &str) -> String {
    let args = [
        "admin-token",
        "create",
        "--name",
        role,
        "--role",
        role,
        "--expires",
        expires,
    ];
    let (out, err, code) = site.run(&args);
    assert_eq!(code, 0, "{err}");
    out.trim().to_owned()
}

pub(crate) fn id(token: &str) -> &str {
    token.split('_').nth(1).unwrap()
}

/// A request to the admin listener of a daemon without TLS.
pub(crate) fn request(site: &Site, method: Method, path: &str, token: &str) -> RequestBuilder {
    let addr = site.daemon.as_ref().unwrap().admin_addr().unwrap();
    Client::new()
        .request(method, format!("http://{addr}/api/v1/admin{path}"))
        .bearer_auth(token)
}

async fn get(site: &Site, path: &str, token: &str) -> Value {
    ok(request(site, Method::GET, path, token).send().await.unwrap()).await
}

async fn post(site: &Site, path: &str, token: &str, body: &Value) -> Response {
    let request = request(site, Method::POST, path, token);
    request.json(body).send().await.unwrap()
}

async fn ok(response: Response) -> Value {
    let status = response.status().as_u16();
    assert_eq!(response.headers()["cache-control"], "no-store");
    let text = response.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_without_a_credential_that_counts_gets_anything() {
    let site = Site::start().await;
    let agent = Agent::new("node-0001");
    let node_token = site.token("node-0001", &agent.public(), "1h");
    let valid = credential(&site, "admin", "1h");
    let (revoked, short) = (credential(&site, "admin", "1h"), credential(&site, "admin", "1s"));
    assert_eq!(site.run(&["admin-token", "revoke", id(&revoked)]).2, 0);
    let secret = revoked.splitn(3, '_').last().unwrap();
    let crossed = format!("vea_{}_{secret}", id(&valid));
    eventually("the short one's end", async || {
        let got = request(&site, Method::GET, "/nodes", &short)
            .send()
            .await
            .unwrap();
        got.status() == 401
    })
    .await;
    let addr = site.daemon.as_ref().unwrap().admin_addr().unwrap();
    let bare = Client::new().get(format!("http://{addr}/api/v1/admin/nodes"));
    assert_eq!(
        problem(bare.send().await.unwrap()).await,
        (401, "not_authorized".into())
    );
    for shown in ["", "x", &node_token, &revoked, &short, &crossed] {
        let refused = request(&site, Method::GET, "/nodes", shown).send().await.unwrap();
        assert_eq!(refused.headers()["www-authenticate"], "Bearer");
        assert_eq!(problem(refused).await, (401, "not_authorized".into()), "{shown}");
    }
    assert_eq!(get(&site, "/nodes", &valid).await, json!({ "items": [] }));
    // Who keeps trying is told to wait; who has a credential is not kept out by it.
    eventually("patience is over", async || {
        let refused = request(&site, Method::GET, "/nodes", "x").send().await.unwrap();
        refused.status() == 429 && refused.headers().contains_key("retry-after")
    })
    .await;
    assert_eq!(get(&site, "/nodes", &valid).await, json!({ "items": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_certificate_is_no_credential_of_the_admin_listener_and_an_admin_token_none_of_the_gateway() {
    let mut site = Site::prepare().await;
    let mut config = site.config();
    config.admin.tls = true;
    site.start_with(config).await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let token = credential(&site, "admin", "1h");
    let port = site.daemon.as_ref().unwrap().admin_addr().unwrap().port();
    let url = format!("https://localhost:{port}/api/v1/admin/nodes");
    let with = agent.client(&site);
    // Not with the certificate alone, and not with a credential beside it either.
    assert_eq!(
        problem(with.get(&url).send().await.unwrap()).await,
        (403, "not_authorized".into())
    );
    let both = with.get(&url).bearer_auth(&token).send().await.unwrap();
    assert_eq!(problem(both).await, (403, "not_authorized".into()));
    let without = client(&site.ca(), None);
    assert_eq!(
        without
            .get(&url)
            .bearer_auth(&token)
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
    // In the clear there is nothing.
    assert!(
        Client::new()
            .get(url.replace("https", "http"))
            .bearer_auth(&token)
            .send()
            .await
            .is_err()
    );
    let beat = format!(
        "{}{}",
        site.gateway(),
        heartbeat_path(&agent.node.parse().unwrap())
    );
    let body = agent.heartbeat_text(1, clock::now_ms());
    let refused = without
        .post(beat)
        .bearer_auth(&token)
        .body(body)
        .send()
        .await
        .unwrap();
    assert_eq!(problem(refused).await, (403, "identity_mismatch".into()));
    let admin = format!("{}/api/v1/admin/nodes", site.gateway());
    assert_eq!(
        without
            .get(admin)
            .bearer_auth(&token)
            .send()
            .await
            .unwrap()
            .status(),
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_may_do_what_it_may_and_no_more() {
    let site = Site::start().await;
    let agent = Agent::enrolled(&site, "node-0001").await;
    let [viewer, operator, admin] = ["viewer", "operator", "admin"].map(|r| credential(&site, r, "1h"));
    let disable = json!({ "reason": "disk is failing" });
    for path in [
        "/nodes",
        "/nodes/node-0001",
        "/commands",
        "/certificates",
        "/status",
        "/node-tokens",
    ] {
        get(&site, path, &viewer).await;
    }
    let path = "/nodes/node-0001/disable";
    assert_eq!(
        problem(post(&site, path, &viewer, &disable).await).await,
        (403, "not_authorized".into())
    );
    assert_eq!(
        ok(post(&site, path, &operator, &disable).await).await["reason"],
        "disk is failing"
    );
    let mut sequence = 0;
    eventually("the node is refused", async || {
        sequence += 1;
        !agent.beat(&agent.client(&site), &site, sequence).await.accepted
    })
    .await;
    let new = json!({ "name": "bob", "role": "admin", "expires_seconds": 60 });
    for path in ["/audit", "/admin-tokens"] {
        let refused = request(&site, Method::GET, path, &operator).send().await.unwrap();
        assert_eq!(problem(refused).await, (403, "not_authorized".into()));
    }
    assert_eq!(
        problem(post(&site, "/admin-tokens", &operator, &new).await)
            .await
            .0,
        403
    );
    let made = ok(post(&site, "/admin-tokens", &admin, &new).await).await;
    let bob = made["token"].as_str().unwrap();
    // Rotated: both count, then only the new one.
    let rotate = json!({ "expires_seconds": 60, "overlap_seconds": 0 });
    let path = format!("/admin-tokens/{}/rotate", id(bob));
    let next = ok(post(&site, &path, bob, &rotate).await).await;
    assert_eq!((&next["name"], &next["role"]), (&json!("bob"), &json!("admin")));
    assert_eq!(
        request(&site, Method::GET, "/audit", bob)
            .send()
            .await
            .unwrap()
            .status(),
        401
    );
    let log = get(&site, "/audit", next["token"].as_str().unwrap()).await;
    let refused: Vec<_> = log["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|r| r["action"] == "admin.forbidden")
        .collect();
    assert_eq!(refused.len(), 4, "{log}");
    assert_eq!(
        (&refused[0]["target"], &refused[0]["role"]),
        (&json!("disableNode"), &json!("viewer"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_do_over_http_what_the_command_line_does() {
    let site = Site::start().await;
    let token = credential(&site, "operator", "1h");
    // A registration token, a join token with approval.
    let mut agent = Agent::new("node-0001");
    let wanted =
        json!({ "nodes": [{ "cluster_id": CLUSTER, "node_id": "node-0001", "pubkey": agent.public() }] });
    let made = ok(post(&site, "/node-tokens", &token, &wanted).await).await;
    agent.register(&site, made[0]["token"].as_str().unwrap()).await;
    let client = agent.client(&site);
    assert!(agent.beat(&client, &site, 1).await.accepted);
    site.wait_sequence(&agent.node, 1).await;
    eventually("the node's row", async || {
        let row = &get(&site, "/nodes", &token).await["items"][0];
        row["last_received"] == 1 && row["last_on_chain"] == 1 && row["lag"] == 0
    })
    .await;
    // An order, and its history.
    let order =
        json!({ "node_id": "node-0001", "type": "run_diagnostic", "parameters": { "name": "gpu_memory" } });
    let sent = ok(post(&site, "/commands", &token, &order).await).await;
    let path = format!("/commands/{}", sent["command_id"].as_str().unwrap());
    let mut sequence = 1;
    eventually("the order", async || {
        sequence += 1;
        !agent.beat(&client, &site, sequence).await.commands.is_empty()
    })
    .await;
    let shown = get(&site, &path, &token).await;
    assert!(
        shown["issued_by"].as_str().unwrap().contains(id(&token)),
        "{shown}"
    );
    assert!(shown["told_at"].is_number(), "{shown}");
    ok(post(&site, &format!("{path}/cancel"), &token, &json!({})).await).await;
    assert_eq!(
        problem(post(&site, &format!("{path}/cancel"), &token, &json!({})).await)
            .await
            .0,
        409
    );
    assert_eq!(
        get(&site, "/commands?node_id=node-0001", &token).await["items"][0]["state"],
        "cancelled"
    );
    // A drain on chain, and its end.
    let drained = ok(post(
        &site,
        "/nodes/node-0001/drain",
        &token,
        &json!({ "reason": "new memory" }),
    )
    .await)
    .await;
    assert_eq!(drained["tx"].as_str().unwrap().len(), 64);
    let state = site.node("node-0001").await.state;
    assert!(
        matches!(state, NodeState::Draining | NodeState::Drained),
        "{state:?}"
    );
    ok(post(&site, "/nodes/node-0001/resume", &token, &json!({})).await).await;
    // A revoked certificate counts no more.
    let revoked = ok(post(
        &site,
        "/certificates/revoke",
        &token,
        &json!({ "node_id": "node-0001" }),
    )
    .await)
    .await;
    assert_eq!(revoked, json!({ "revoked": 1 }));
    let url = format!(
        "{}{}",
        site.gateway(),
        heartbeat_path(&agent.node.parse().unwrap())
    );
    eventually("the revocation", async || {
        // A connection that is open when it takes effect just ends.
        let body = agent.heartbeat_text(1000, clock::now_ms());
        let sent = agent.client(&site).post(&url).body(body).send().await;
        sent.is_ok_and(|answer| answer.status() == 401)
    })
    .await;
    let missing = post(&site, "/nodes/node-none/enable", &token, &json!({})).await;
    assert_eq!(problem(missing).await, (404, "unknown_node".into()));
    let log = site.run(&["audit", "export"]).0;
    let acts: Vec<Value> = log.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    for (action, result) in [
        ("node_token.create", "done"),
        ("command.send", "done"),
        ("command.cancel", "done"),
        ("command.cancel", "refused"),
        ("node.drain", "begun"),
        ("node.drain", "done"),
        ("node.resume", "done"),
        ("certificate.revoke", "done"),
        ("node.enable", "refused"),
    ] {
        let one = acts
            .iter()
            .find(|a| a["action"] == action && a["result"] == result);
        let one = one.unwrap_or_else(|| panic!("{action} {result}: {log}"));
        assert_eq!(
            (&one["via"], &one["role"]),
            (&json!("admin_api"), &json!("operator"))
        );
    }
    // Secrets never stand in it.
    let secret = token.splitn(3, '_').last().unwrap();
    assert!(!log.contains(secret) && !log.contains(made[0]["token"].as_str().unwrap()));
    assert_eq!(site.run(&["audit", "verify"]).2, 0);
}
