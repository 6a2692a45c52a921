//! What goes wrong with a gateway that does not settle is told as well.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::pair::{second_home, settles};
use crate::process::Process;
use crate::receiver::{Mode, Receiver};
use crate::site::{Site, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_does_not_settle_has_its_own_troubles_told_with_its_name_and_their_end() {
    let mut site = Site::start().await;
    site.stop_daemon().await;
    let receiver = Receiver::start(Mode::Takes).await;
    let secret = site.home().join("webhook.secret");
    std::fs::write(&secret, "0123456789abcdef").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let webhooks = format!(
        "[{{url: '{}', secret_file: '{}'}}]",
        receiver.url(),
        secret.display()
    );
    let env = [
        ("VIRTENGINE_PROVIDER__ALERTS__WEBHOOKS", webhooks.as_str()),
        ("VIRTENGINE_PROVIDER__ALERTS__GROUP_WAIT", "1s"),
    ];
    let homes = [site.home(), second_home(&site)];
    let gateways = homes
        .each_ref()
        .map(|home| Process::start_at(home, &site, None, &env));
    let mut standby = None;
    eventually("one of them to settle", async || {
        for (n, gateway) in gateways.iter().enumerate() {
            if settles(gateway).await {
                standby = Some(1 - n);
            }
        }
        standby.is_some()
    })
    .await;
    let standby = standby.unwrap();
    let name = gateways[standby].ops.rsplit(':').next().unwrap().to_owned();
    // A certificate that cannot be used, on the one that does not settle.
    let cert = homes[standby].join("gateway/server.crt");
    let good = std::fs::read_to_string(&cert).unwrap();
    std::fs::write(&cert, "nothing").unwrap();
    gateways[standby].hang_up();
    let told = |status: &str| {
        let taken = receiver.taken();
        let mut of: Vec<Value> = taken.into_iter().map(|g| g.body).collect();
        of.retain(|b| b["name"] == "reload_failed" && b["status"] == status);
        of
    };
    eventually("the alert", async || !told("firing").is_empty()).await;
    let instance = told("firing")[0]["alerts"][0]["instance"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        instance.ends_with(&format!(":{name}")),
        "{instance} is not of {name}"
    );
    let (list, ..) = site.run(&["alert", "list", "-o", "json"]);
    assert!(
        list.contains(&instance) && list.contains("reload_failed"),
        "{list}"
    );
    std::fs::write(&cert, good).unwrap();
    gateways[standby].hang_up();
    eventually("its end", async || !told("resolved").is_empty()).await;
    assert_eq!((told("firing").len(), told("resolved").len()), (1, 1));
}
