// A node agent in another language: registers a node and gets its report accepted, written from
// docs/protocol.md alone. It imports nothing of this project.
//
// Environment: RPC (URL), CONTRACT (address), CHAIN_ID, MNEMONIC_FILE (the cluster's future owner, funded),
// CLUSTER_ID, NODE_ID. Prints one line of JSON: what the contract then says of the node.
import { createHash, createPrivateKey, createPublicKey, randomBytes, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { Secp256k1HdWallet } from "@cosmjs/amino";
import { SigningCosmWasmClient } from "@cosmjs/cosmwasm-stargate";
import { DirectSecp256k1HdWallet } from "@cosmjs/proto-signing";
import { GasPrice } from "@cosmjs/stargate";

const need = (name) => process.env[name] ?? fail(`set ${name}`);
function fail(text) {
  console.error(text);
  process.exit(1);
}
const sha256 = (bytes) => createHash("sha256").update(bytes).digest();
const u = (width, n) => Buffer.from(BigInt(n).toString(16).padStart(width * 2, "0"), "hex");
const lp = (text) => Buffer.concat([u(2, Buffer.byteLength(text)), Buffer.from(text)]);
const short = (text) => Buffer.concat([u(1, Buffer.byteLength(text)), Buffer.from(text)]);

// Section 1: an Ed25519 key; Node wants the seed in PKCS#8.
function agentKey() {
  const seed = randomBytes(32);
  const der = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]);
  const secret = createPrivateKey({ key: der, format: "der", type: "pkcs8" });
  const spki = createPublicKey(secret).export({ format: "der", type: "spki" });
  return { publicKey: spki.subarray(spki.length - 32), sign: (message) => sign(null, message, secret) };
}

// Section 1.1: canonical JSON, ADR-036.
function canonical(value) {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const keys = Object.keys(value).sort();
  return `{${keys.map((k) => `${JSON.stringify(k)}:${canonical(value[k])}`).join(",")}}`;
}

async function registration(wallet, signer, chainId, contract, identity) {
  const data = canonical({
    chain_id: chainId,
    contract,
    domain: "hpc-node-registration-v1",
    node_identity: identity,
  });
  const doc = {
    account_number: "0",
    chain_id: "",
    fee: { amount: [], gas: "0" },
    memo: "",
    msgs: [
      { type: "sign/MsgSignData", value: { data: Buffer.from(data).toString("base64"), signer } },
    ],
    sequence: "0",
  };
  const { signature } = await wallet.signAmino(signer, doc);
  return { provider_signature: signature.signature, provider_pubkey: signature.pub_key.value };
}

// Section 2.2.
function section({ cores, memory, gpus, storage, version, gpuType }) {
  return Buffer.concat([
    u(1, 1),
    u(4, cores),
    u(4, memory),
    u(2, gpus),
    u(4, storage),
    short(version),
    short(gpuType),
    u(1, 0), // job ids: the cluster's setting is `none`
    u(2, 2), // number of active jobs
    u(1, 1),
    short("node-hpc1-compute-041"),
    u(4, 45),
    u(1, 0),
    u(4, Math.floor(Date.now() / 1000) - 5),
  ]);
}

// Section 2.1.
function body({ status, jobs, cores, memory, gpus, storage, latency, measurements }) {
  return Buffer.concat([
    u(1, status | (jobs ? 8 : 0)),
    u(2, cores),
    u(3, memory),
    u(1, gpus),
    u(3, storage),
    u(3, latency),
    u(1, measurements),
  ]);
}

const chainId = need("CHAIN_ID");
const contract = need("CONTRACT");
const clusterId = need("CLUSTER_ID");
const nodeId = need("NODE_ID");
const wallet = await Secp256k1HdWallet.fromMnemonic(readFileSync(need("MNEMONIC_FILE"), "utf8").trim(), {
  prefix: "wasm",
});
// Transactions are signed in direct mode, the identity by ADR-036 (amino): one key, two wallets.
const direct = await DirectSecp256k1HdWallet.fromMnemonic(wallet.mnemonic, { prefix: "wasm" });
const [{ address: owner }] = await wallet.getAccounts();
const client = await SigningCosmWasmClient.connectWithSigner(need("RPC"), direct, {
  gasPrice: GasPrice.fromString("0stake"),
});
const execute = (msg) => client.execute(owner, contract, msg, { amount: [], gas: "3000000" });
const query = (msg) => client.queryContractSmart(contract, msg);

await execute({ create_cluster: { cluster_id: clusterId } });
await execute({ activate_cluster: { cluster_id: clusterId } });

const agent = agentKey();
const identity = {
  node_id: nodeId,
  cluster_id: clusterId,
  provider_address: owner,
  agent_pubkey: agent.publicKey.toString("base64"),
  hostname: "compute-042",
  hardware_fingerprint: sha256(randomBytes(16)).toString("hex"),
  registration_nonce: randomBytes(32).toString("base64"),
  registration_timestamp: new Date().toISOString(),
};
await execute({
  register_node: {
    node_identity: identity,
    ...(await registration(wallet, owner, chainId, contract, identity)),
  },
});

const {
  nodes: [place],
} = await query({ relay: { cluster_id: clusterId, node_ids: [nodeId] } });

const tag = sha256(
  Buffer.concat([
    Buffer.from("hpc-report-v1"),
    lp(chainId),
    lp(contract),
    lp(clusterId),
    lp(nodeId),
    u(8, place.epoch),
  ]),
).subarray(0, 16);
const second = section({
  cores: 64, memory: 256, gpus: 4, storage: 2000, version: "0.9.1", gpuType: "NVIDIA A100 80GB",
});
const figures = body({
  status: 1, jobs: true, cores: 32, memory: 128, gpus: 2, storage: 1500, latency: 44, measurements: 2,
});
const time = Math.floor(Date.now() / 1000);
const sequence = 145823;
const payloadHash = sha256(Buffer.from(`{"node_id":"${nodeId}"}`));
const digest = sha256(second).subarray(0, 16);
const report = Buffer.concat([u(4, time), u(4, sequence), figures, digest, payloadHash]);
const signature = agent.sign(Buffer.concat([tag, report]));

// Section 3: one page group of one item, section attached (bit 4 of the flags, framing only).
const framed = Buffer.from(figures);
framed[0] |= 16;
const batch = Buffer.concat([
  u(1, 1), u(4, time), u(2, place.page), u(1, 1),
  u(1, place.slot), u(4, sequence), u(2, 0), framed, payloadHash, signature,
  u(2, second.length), second,
]);
const groups = [{ cluster_id: clusterId, reports: batch.toString("base64") }];
const sent = await execute({ submit_reports: { groups } });

// The same bytes again: an outcome of its own, no failure of the transaction.
const again = await execute({ submit_reports: { groups } });

const { node } = await query({ node: { cluster_id: clusterId, node_id: nodeId } });
console.log(
  JSON.stringify({
    state: node.state,
    active: node.active,
    sequence: node.sequence,
    resources: node.resources,
    totals: node.totals,
    avg_latency_us: node.avg_latency_us,
    epoch: place.epoch,
    transactions: [sent.transactionHash, again.transactionHash],
  }),
);
client.disconnect();
