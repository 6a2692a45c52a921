//! `deploy`: stores the contract if need be, instantiates it, asks it something, writes a profile.

use std::path::PathBuf;

use hpc_chain::msg;
use hpc_chain::query::CodeInfo;
use hpc_chain::registry::RegistryClient;
use hpc_schema::registry::{InstantiateMsg, ParamsUpdate};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::args::DeployArgs;
use crate::context::{Context, dial, missing};
use crate::error::{Exit, Failure};
use crate::output::{Lines, Text, TxOut, note};
use crate::profile::{Place, Profile, prefix_of};
use crate::tx::Sending;

/// wasmd takes 800 KiB by default; chains may take more.
const MAX_WASM: u64 = 16 << 20;
/// Where the contract is looked for.
const WASM_PLACES: [&str; 2] = [
    "target/wasm/hpc_registry.wasm",
    "/usr/share/virtengine/hpc_registry.wasm",
];
const MAX_PARAMS: u64 = 64 * 1024;
/// Prefix of addresses where neither address nor profile tells.
const DEFAULT_PREFIX: &str = "wasm";

/// What was deployed.
#[derive(Debug, Serialize)]
struct Deployed {
    contract: String,
    code_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
    chain_id: String,
    node: String,
    admin: String,
    version: String,
    /// Hash of the store transaction; absent with `--code-id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    store_txhash: Option<String>,
    instantiate_txhash: String,
    height: u64,
    profile: String,
    profile_path: String,
}

impl Text for Deployed {
    fn text(&self) -> String {
        let Self {
            contract,
            code_id,
            checksum,
            chain_id,
            node,
            admin,
            version,
            ..
        } = self;
        let mut lines = Lines::new();
        lines
            .line("contract", contract)
            .line("code_id", code_id)
            .maybe("checksum", checksum.as_deref());
        lines
            .line("chain_id", chain_id)
            .line("node", node)
            .line("admin", admin)
            .line("version", version);
        let Self {
            store_txhash,
            instantiate_txhash,
            height,
            profile,
            profile_path,
            ..
        } = self;
        lines
            .maybe("store_txhash", store_txhash.as_deref())
            .line("instantiate_txhash", instantiate_txhash);
        lines
            .line("height", height)
            .line("profile", profile)
            .line("profile_path", profile_path);
        lines.finish()
    }
}

/// Runs the command.
pub(crate) async fn run(context: &Context, args: &DeployArgs) -> Result<(), Failure> {
    let node = args
        .connect
        .node
        .as_deref()
        .ok_or_else(|| missing("node", "--node URL", "VIRTENGINE_NODE"))?;
    let chain = dial(node, &args.connect)?;
    let prefix = args
        .prefix
        .as_deref()
        .or_else(|| args.admin.as_deref().and_then(prefix_of));
    let prefix = prefix.unwrap_or(DEFAULT_PREFIX);
    // The command says all that happens; there is nothing left to ask.
    let sending = Sending::new(context, &chain, None, prefix, &args.sign, &args.keyring)?.confirmed();
    // Everything that can be wrong here is found before anything is paid for.
    let init = InstantiateMsg {
        admin: args.admin.clone(),
        params: params(args)?,
    };
    let place = match &context.named {
        Some(place) => place.clone(),
        None => Place::parse(sending.chain_id())?,
    };
    let Some(code) = code(context, &sending, args).await? else {
        return Ok(());
    };
    let code_id = code.id;
    // Migration is the registry admin's business too: one role, one address.
    let admin = args.admin.as_deref().unwrap_or(sending.sender());
    let message = msg::instantiate(sending.sender(), Some(admin), code_id, &args.label, &init, &[])?;
    let what = format!("instantiate code {code_id} as {:?}, admin {admin}", args.label);
    let Some(tx) = sending.send(context, &what, message).await? else {
        return Ok(());
    };
    let contract = attribute(&tx, "instantiate", "_contract_address")?;
    let checksum = match code.checksum {
        Some(checksum) => Some(checksum),
        None => chain
            .codes()
            .await?
            .value
            .into_iter()
            .find(|c| c.code_id == code_id)
            .map(|c| c.checksum),
    };
    let profile = Profile {
        chain_id: sending.chain_id().to_owned(),
        node: node.to_owned(),
        code_id,
        checksum: checksum.filter(|c| !c.is_empty()),
        gas_prices: args.sign.gas_prices.clone(),
        prefix: prefix_of(&contract).unwrap_or(prefix).to_owned(),
        contract,
    };
    // Written before the contract is asked: it exists, whatever the next answer is.
    let path = context.home.save(&place, &profile)?;
    if let Place::Name(name) = &place {
        context.home.choose(name)?;
    }
    let config = RegistryClient::new(chain, profile.contract.clone())
        .config()
        .await?
        .value;
    let Profile {
        chain_id,
        node,
        contract,
        code_id,
        checksum,
        ..
    } = profile;
    context.printer.print(&Deployed {
        contract,
        code_id,
        checksum,
        chain_id,
        node,
        admin: config.admin,
        version: config.version,
        store_txhash: code.txhash,
        instantiate_txhash: tx.txhash,
        height: tx.height,
        profile: place.name(),
        profile_path: path.display().to_string(),
    })
}

/// The code to run.
struct Code {
    id: u64,
    /// As the chain's event says.
    checksum: Option<String>,
    /// Hash of the transaction that stored it.
    txhash: Option<String>,
}

/// Takes the code named, or stores one; `None` after a dry run.
async fn code(context: &Context, sending: &Sending<'_>, args: &DeployArgs) -> Result<Option<Code>, Failure> {
    if let Some(id) = args.code_id {
        return Ok(Some(Code {
            id,
            checksum: None,
            txhash: None,
        }));
    }
    if args.wasm.is_none()
        && let Some(native) = sending.chain().codes().await?.value.into_iter().find(is_native)
    {
        note(&format!(
            "the chain has the registry built in as code {}",
            native.code_id
        ));
        return Ok(Some(Code {
            id: native.code_id,
            checksum: Some(native.checksum),
            txhash: None,
        }));
    }
    let path = wasm_file(args)?;
    let wasm = crate::file::read(&path, MAX_WASM)?;
    if !wasm.starts_with(b"\0asm") {
        return Err(Failure::new(
            Exit::Failed,
            "bad_file",
            format!("{}: not a wasm file", path.display()),
        )
        .remedy("build the contract first: scripts/wasm"));
    }
    let what = format!("store {} ({} bytes)", path.display(), wasm.len());
    let Some(tx) = sending
        .send(context, &what, msg::store_code(sending.sender(), wasm))
        .await?
    else {
        return Ok(None);
    };
    let id = attribute(&tx, "store_code", "code_id")?
        .parse()
        .map_err(|_| unreadable("code_id"))?;
    note(&format!("stored {} as code {id}", path.display()));
    let checksum = tx.attribute("store_code", "code_checksum").map(str::to_owned);
    Ok(Some(Code {
        id,
        checksum,
        txhash: Some(tx.txhash),
    }))
}

/// Whether a code is the registry that the embedded chain has built in: instead of a checksum of wasm, which it has not,
/// it shows that of the contract's name.
fn is_native(code: &CodeInfo) -> bool {
    code.checksum == hex::encode(Sha256::digest("hpc-registry"))
}

fn wasm_file(args: &DeployArgs) -> Result<PathBuf, Failure> {
    if let Some(path) = &args.wasm {
        return Ok(path.clone());
    }
    let found = WASM_PLACES.iter().map(PathBuf::from).find(|p| p.is_file());
    found.ok_or_else(|| {
        let places = WASM_PLACES.join(" nor ");
        Failure::usage("wasm_missing", format!("no contract to store: neither {places} exists"))
            .remedy("build it with scripts/wasm, name it with --wasm FILE, or use a stored code with --code-id N (the embedded chain has code 1)")
    })
}

fn params(args: &DeployArgs) -> Result<ParamsUpdate, Failure> {
    let Some(path) = &args.params_file else {
        return Ok(ParamsUpdate::default());
    };
    let bad = |e: &dyn std::fmt::Display| {
        Failure::new(Exit::Failed, "bad_file", format!("{}: {e}", path.display()))
            .remedy("see the parameters and their ranges in docs/protocol.md")
    };
    let text = crate::file::read(path, MAX_PARAMS)?;
    let update: ParamsUpdate = serde_json::from_slice(&text).map_err(|e| bad(&e))?;
    update
        .clone()
        .apply(&hpc_schema::registry::Params::default())
        .map_err(|e| bad(&e))?;
    Ok(update)
}

fn attribute(tx: &TxOut, event: &str, key: &str) -> Result<String, Failure> {
    tx.attribute(event, key)
        .map(str::to_owned)
        .ok_or_else(|| unreadable(key))
}

fn unreadable(what: &str) -> Failure {
    Failure::new(
        Exit::Failed,
        "bad_answer",
        format!("the transaction's events name no {what}"),
    )
    .remedy("check that the node is a wasmd chain")
}
