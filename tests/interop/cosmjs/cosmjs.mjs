// CosmJS against a chain: connects over HTTP and websocket, sends coins, executes, waits for inclusion, queries.
// Fails (exit code 1, the reason on stderr) at the first thing that is not as CosmJS expects it of a chain.
//
// Environment:
//   RPC            URL of the chain's RPC, http://…
//   CHAIN_ID       what the chain must say it is
//   MNEMONIC_FILE  words of a funded account (prefix wasm, HD path m/44'/118'/0'/0/0)
//   CONTRACT       address of the contract; without it code id 1 is instantiated with INSTANTIATE
//   INSTANTIATE    JSON, default {}
//   EXECUTE        JSON of an execute message that succeeds
//   REFUSED        JSON of an execute message that the contract refuses
//   REFUSAL        text that the refusal contains
//   QUERY          JSON of a smart query
//   RAW_KEY        a key of the contract's storage that is there, as text (optional)
//   DENOM          default stake
// Prints one line of JSON: {contract, hash, height, gas_used, answer, events}.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { SigningCosmWasmClient } from "@cosmjs/cosmwasm-stargate";
import { DirectSecp256k1HdWallet } from "@cosmjs/proto-signing";
import { GasPrice } from "@cosmjs/stargate";

function need(name) {
  const value = process.env[name];
  if (value === undefined || value === "") {
    console.error(`set ${name}; the head of cosmjs.mjs says to what`);
    process.exit(1);
  }
  return value;
}

const rpc = need("RPC");
const denom = process.env.DENOM ?? "stake";
const mnemonic = readFileSync(need("MNEMONIC_FILE"), "utf8").trim();
const wallet = await DirectSecp256k1HdWallet.fromMnemonic(mnemonic, { prefix: "wasm" });
const [{ address }] = await wallet.getAccounts();
const options = { gasPrice: GasPrice.fromString(`0${denom}`), broadcastPollIntervalMs: 250, broadcastTimeoutMs: 30_000 };

// Connect, account, balance.
const client = await SigningCosmWasmClient.connectWithSigner(rpc, wallet, options);
assert.equal(await client.getChainId(), need("CHAIN_ID"));
assert.ok((await client.getHeight()) > 0);
const before = await client.getAccount(address);
assert.ok(before, "the account of MNEMONIC_FILE does not exist");
assert.ok(BigInt((await client.getBalance(address, denom)).amount) > 0n, "the account has no coins");
const nobody = await (await DirectSecp256k1HdWallet.generate(12, { prefix: "wasm" })).getAccounts();
assert.equal(await client.getAccount(nobody[0].address), null);

// Send coins with a fee, so that a new account is made.
const fee = { amount: [{ denom, amount: "2000" }], gas: "200000" };
const sent = await client.sendTokens(address, nobody[0].address, [{ denom, amount: "3" }], fee, "from CosmJS");
assert.equal(sent.code, 0, sent.rawLog);
assert.equal((await client.getBalance(nobody[0].address, denom)).amount, "3");
assert.equal((await client.getSequence(address)).sequence, before.sequence + 1);

// Instantiate if there is no contract yet; execute with estimated gas; wait for inclusion.
let contract = process.env.CONTRACT;
if (!contract) {
  const message = JSON.parse(process.env.INSTANTIATE ?? "{}");
  const made = await client.instantiate(address, 1, message, "CosmJS", 1.5, { admin: address });
  contract = made.contractAddress;
}
const execute = JSON.parse(need("EXECUTE"));
const done = await client.execute(address, contract, execute, 1.5, "memo", []);
const found = await client.getTx(done.transactionHash);
assert.ok(found, "an included transaction is not found by its hash");
assert.equal(found.code, 0);
assert.equal(found.height, done.height);
assert.equal(found.msgResponses.length, 1);
assert.equal(found.msgResponses[0].typeUrl, "/cosmwasm.wasm.v1.MsgExecuteContractResponse");
const events = done.events.map((event) => event.type);
const executed = done.events.find((event) => event.type === "execute");
assert.deepEqual(executed.attributes[0], { key: "_contract_address", value: contract });

// A refusal by the contract: in the simulation, and in a block.
const refused = JSON.parse(need("REFUSED"));
await assert.rejects(client.execute(address, contract, refused, 1.5), new RegExp(need("REFUSAL")));
await assert.rejects(
  client.execute(address, contract, refused, { amount: [], gas: "1000000" }),
  new RegExp(`Code: 5[^]*${need("REFUSAL")}`),
);

// Refused before the mempool: too little gas.
await assert.rejects(client.execute(address, contract, execute, { amount: [], gas: "1" }), (error) => {
  assert.equal(error.code, 11, `${error}`);
  assert.equal(error.codespace, "sdk");
  return true;
});

// Queries.
const query = JSON.parse(need("QUERY"));
const answer = await client.queryContractSmart(contract, query);
await assert.rejects(client.queryContractSmart(contract, { no_such_query: {} }), /Query failed with \(6\)/);
const info = await client.getContract(contract);
assert.equal(info.address, contract);
assert.ok((await client.getCodes()).some((code) => code.id === info.codeId));
const missing = await client.queryContractRaw(contract, new TextEncoder().encode("no such key"));
assert.equal(missing?.length ?? 0, 0);
if (process.env.RAW_KEY) {
  const raw = await client.queryContractRaw(contract, new TextEncoder().encode(process.env.RAW_KEY));
  assert.ok(raw.length > 0);
}
await assert.rejects(client.getContract(nobody[0].address), /No contract found|no such contract|not found/);
const mine = await client.searchTx(`message.sender='${address}'`);
assert.ok(mine.some((tx) => tx.hash === done.transactionHash));
const block = await client.getBlock(done.height);
assert.equal(block.header.height, done.height);
assert.ok(block.txs.length > 0);
assert.equal(await client.getTx("00".repeat(32)), null);
client.disconnect();

// The same over the websocket.
const socket = await SigningCosmWasmClient.connectWithSigner(rpc.replace(/^http/, "ws"), wallet, options);
assert.equal(await socket.getChainId(), need("CHAIN_ID"));
// Blocks go on meanwhile: all but the block of the answer must be the same.
assert.deepEqual({ ...(await socket.queryContractSmart(contract, query)), block: null }, { ...answer, block: null });
socket.disconnect();

console.log(
  JSON.stringify({
    contract,
    hash: done.transactionHash,
    height: done.height,
    gas_used: done.gasUsed.toString(),
    answer,
    events,
  }),
);

// CosmJS 0.38 opens a disconnected websocket again by itself, which would keep this process alive for ever.
process.exit(0);
