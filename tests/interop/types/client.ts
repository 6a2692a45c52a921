// A client that the compiler checks against schema/ts, used on a chain: creates a cluster and asks each query.
//
// Environment: RPC (URL), MNEMONIC (words of a funded account), CONTRACT (address; without it code id 1 is instantiated),
// CLUSTER_ID. Prints one line of JSON: {contract, owner, params, cluster, total_nodes, refused}.
import { SigningCosmWasmClient } from "@cosmjs/cosmwasm";
import { DirectSecp256k1HdWallet } from "@cosmjs/proto-signing";
import { GasPrice } from "@cosmjs/stargate";
import type * as hpc from "../../../schema/ts/hpc.js";

type Names<T> = T extends unknown ? keyof T : never;
type QueryName = Names<hpc.QueryMsg>;
type Question<N extends QueryName> = Extract<hpc.QueryMsg, Record<N, unknown>>[N];

/** What the contract answers; a query that stands not here does not compile in `ask`. */
interface Answers {
  config: hpc.ConfigAnswer;
  params: hpc.Params;
  cluster: hpc.ClusterAnswer;
  clusters: hpc.ClustersAnswer;
  aggregate: hpc.AggregateAnswer;
  node: hpc.NodeAnswer;
  nodes: hpc.NodesAnswer;
  nodes_by_ids: hpc.NodesAnswer;
  relay: hpc.RelayAnswer;
  jobs_at_risk: hpc.JobsAnswer;
  raw_page: hpc.RawPageAnswer;
  anchors: hpc.AnchorsAnswer;
  anchor: hpc.AnchorAnswer;
}

declare const process: { env: Record<string, string | undefined>; exit(code: number): never };
declare const console: { log(text: string): void; error(text: string): void };

function need(name: string): string {
  const value = process.env[name];
  if (value !== undefined) return value;
  console.error(`set ${name}; the head of client.ts says to what`);
  return process.exit(1);
}

const wallet = await DirectSecp256k1HdWallet.fromMnemonic(need("MNEMONIC").trim(), { prefix: "wasm" });
const [account] = await wallet.getAccounts();
if (account === undefined) throw new Error("the wallet has no account");
const sender = account.address;
const client = await SigningCosmWasmClient.connectWithSigner(need("RPC"), wallet, {
  gasPrice: GasPrice.fromString("0stake"),
  broadcastPollIntervalMs: 250,
});
const instantiate: hpc.InstantiateMsg = { params: { heartbeat_interval: 20 } };
const contract =
  process.env["CONTRACT"] ?? (await client.instantiate(sender, 1, instantiate, "typed", 1.5)).contractAddress;

const execute = (message: hpc.ExecuteMsg) => client.execute(sender, contract, message, 1.5);
async function ask<N extends QueryName>(name: N, question: Question<N>): Promise<Answers[N]> {
  return client.queryContractSmart(contract, { [name]: question });
}

const cluster_id: hpc.ClusterId = need("CLUSTER_ID");
await execute({ create_cluster: { cluster_id, region: "eu-central", job_ids: "hashed" } });
await execute({ activate_cluster: { cluster_id } });
const digest = "ab".repeat(32);
await execute({ anchor: { cluster_id, kind: "audit-head", digest } });

// The compiler refuses each of these; it would complain if it did not.
// @ts-expect-error no such message
const unknown: hpc.ExecuteMsg = { create_clusters: { cluster_id } };
// @ts-expect-error a required field is missing
const missing: hpc.ExecuteMsg = { drain_node: { reason: "maintenance" } };
// @ts-expect-error a field that no message has
const surplus: hpc.QueryMsg = { cluster: { cluster_id, page: 1 } };
// @ts-expect-error not one of the settings
const setting: hpc.JobIds = "some";
// @ts-expect-error the state of a node is a closed list
const state: hpc.NodeState = "asleep";
void [unknown, missing, surplus, setting, state];

const { cluster, aggregate } = await ask("cluster", { cluster_id });
const params = await ask("params", {});
const { registrations_paused, contract: name } = await ask("config", {});
const { clusters } = await ask("clusters", { owner: sender, limit: 10 });
const { recorded } = await ask("aggregate", { cluster_id });
const { nodes, next } = await ask("nodes", { filter: { cluster_id, state: "active", schedulable: true } });
const byIds = await ask("nodes_by_ids", { cluster_id, node_ids: ["node-0001"] });
const relay = await ask("relay", { cluster_id, node_ids: ["node-0001"] });
const jobs = await ask("jobs_at_risk", { cluster_id });
const { anchors } = await ask("anchors", { cluster_id, kind: "audit-head" });
const { anchor } = await ask("anchor", { cluster_id, kind: "audit-head", digest });
const code = (error: unknown) => String(error);
const refused = [
  await ask("node", { cluster_id, node_id: "node-0001" }).catch(code),
  await execute({ create_cluster: { cluster_id } }).catch(code),
].map(String);

console.log(
  JSON.stringify({
    contract,
    name,
    owner: cluster.owner,
    region: cluster.region,
    job_ids: cluster.job_ids,
    active: cluster.active,
    interval: params.heartbeat_interval,
    registrations_paused,
    clusters: clusters.map((c) => c.cluster_id),
    score: aggregate.health_score,
    total_nodes: recorded.total_nodes,
    nodes: nodes.length + byIds.nodes.length + relay.nodes.length + jobs.nodes.length,
    next: next ?? null,
    anchored: [anchors.length, anchor?.height !== undefined, anchor?.sender === sender],
    refused,
  }),
);
client.disconnect();
