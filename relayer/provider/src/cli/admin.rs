use std::path::Path;

use anyhow::Context as _;
use serde_json::json;

use super::args::AdminTokenCommand;
use super::desk::Desk;
use super::output::{Output, or_dash};
use crate::admin::credential::{Made, NewCredential};
use crate::home;

pub(super) async fn run(desk: &Desk, command: AdminTokenCommand, out: Output) -> anyhow::Result<()> {
    match command {
        AdminTokenCommand::Create {
            name,
            role,
            expires,
            token_file,
        } => {
            refuse_existing(token_file.as_deref())?;
            let new = NewCredential {
                name,
                role,
                expires_seconds: expires.as_secs(),
            };
            hand_out(&desk.make_credential(&new).await?, token_file.as_deref(), out)
        }
        AdminTokenCommand::Rotate {
            id,
            expires,
            overlap,
            token_file,
        } => {
            refuse_existing(token_file.as_deref())?;
            let made = desk
                .rotate_credential(&id, expires.as_secs(), overlap.as_secs())
                .await?;
            hand_out(&made, token_file.as_deref(), out)
        }
        AdminTokenCommand::List => {
            let head = ["ID", "NAME", "ROLE", "STATE", "EXPIRES", "REVOKED", "BY"];
            out.list(&desk.credentials().await?, &head, |c| {
                vec![
                    c.id.clone(),
                    c.name.clone(),
                    c.role.to_string(),
                    format!("{:?}", c.state).to_lowercase(),
                    c.expires_at.to_string(),
                    or_dash(c.revoked_at),
                    c.created_by.clone(),
                ]
            })
        }
        AdminTokenCommand::Revoke { id } => {
            desk.revoke_credential(&id).await?;
            out.done(
                &format!("admin token {id} is revoked"),
                &json!({ "id": id, "state": "revoked" }),
            )
        }
    }
}

/// Before anything is made that could not be handed out.
fn refuse_existing(file: Option<&Path>) -> anyhow::Result<()> {
    if let Some(file) = file.filter(|f| f.exists()) {
        anyhow::bail!(
            "--token-file: {} is there already; name a new file",
            file.display()
        );
    }
    Ok(())
}

fn hand_out(made: &Made, file: Option<&Path>, out: Output) -> anyhow::Result<()> {
    let Some(file) = file else {
        return out.done(&made.token, made);
    };
    home::create_private(file, made.token.as_bytes())
        .with_context(|| format!("--token-file: {}", file.display()))?;
    let text = format!("admin token {} is in {}", made.credential.id, file.display());
    out.done(&text, &made.credential)
}
