use std::io::ErrorKind;
use std::path::PathBuf;

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
            let file = token_file.map(TokenFile::reserve).transpose()?;
            let new = NewCredential {
                name,
                role,
                expires_seconds: expires.as_secs(),
            };
            hand_out(&desk.make_credential(&new).await?, file, out)
        }
        AdminTokenCommand::Rotate {
            id,
            expires,
            overlap,
            token_file,
        } => {
            let file = token_file.map(TokenFile::reserve).transpose()?;
            let made = desk
                .rotate_credential(&id, expires.as_secs(), overlap.as_secs())
                .await?;
            hand_out(&made, file, out)
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

/// A file that a credential is to be written into, there and empty before one is made. Dropped without one, it is gone.
struct TokenFile {
    path: PathBuf,
    written: bool,
}

impl TokenFile {
    fn reserve(path: PathBuf) -> anyhow::Result<Self> {
        match home::create_private(&path, b"") {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => anyhow::bail!(
                "--token-file: {} is there already; name a new file",
                path.display()
            ),
            made => made.with_context(|| format!("--token-file: {}", path.display()))?,
        }
        Ok(Self { path, written: false })
    }

    fn write(&mut self, secret: &str) -> std::io::Result<()> {
        home::replace_private(&self.path, secret.as_bytes())?;
        self.written = true;
        Ok(())
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        if !self.written {
            // Best effort: it is empty.
            std::fs::remove_file(&self.path).ok();
        }
    }
}

fn hand_out(made: &Made, file: Option<TokenFile>, out: Output) -> anyhow::Result<()> {
    let Some(mut file) = file else {
        return out.done(&made.token, made);
    };
    let id = &made.credential.id;
    file.write(&made.token).with_context(|| {
        format!(
            "--token-file: {} cannot be written, and admin token {id} has been made; take it back: \
             virtengine-provider admin-token revoke {id}",
            file.path.display()
        )
    })?;
    let text = format!("admin token {id} is in {}", file.path.display());
    out.done(&text, &made.credential)
}
