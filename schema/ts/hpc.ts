/* Written by tests/interop/types/generate.mjs from schema/json; do not edit.
   64-bit integers are numbers here, as JSON.parse makes them: exact up to 2^53 - 1. */

/**
 * An instant in RFC 3339, of at most 64 characters; the text that came in is kept, because it is signed. Digits of a fraction
 * beyond nanoseconds do not count; a leap second counts as the second before it.
 */
export type Rfc3339 = string;
/**
 * An Ed25519 public key, base64 in JSON: a point of the curve, of large order, in canonical encoding.
 */
export type AgentKey = string;
/**
 * Who may create clusters.
 */
export type ClusterCreation = "open" | "admin";
/**
 * A cluster's identifier, unique on the contract.
 */
export type ClusterId = string;
/**
 * What of a node's job ids lands on chain (decision 26).
 */
export type JobIds = "plain" | "hashed" | "none";
/**
 * A node's identifier, unique within its cluster.
 */
export type NodeId = string;
/**
 * What a command asks for.
 */
export type CommandType = "drain" | "resume" | "shutdown" | "update_agent" | "run_diagnostic";
/**
 * What became of a command.
 */
export type AcknowledgementStatus = "accepted" | "done" | "failed" | "refused";
/**
 * The container runtime that the node has.
 */
export type ContainerRuntime = "singularity" | "docker" | "podman" | "none";
/**
 * Fixed point with six decimals as an integer string: "16500000" is 16.5.
 */
export type FixedPoint6 = string;
/**
 * A whole percentage.
 */
export type Percent = number;
/**
 * What Slurm says about the node.
 */
export type SlurmState = "idle" | "allocated" | "mixed" | "down" | "drain" | "unknown";
/**
 * What the agent says about its node. The numbers are those of the report body's flags.
 */
export type HealthStatus = "healthy" | "degraded" | "unhealthy" | "draining" | "offline";
/**
 * State of a node on record (specification 000 "Node State Transitions"). UNKNOWN is having no record.
 */
export type NodeState = "pending" | "active" | "stale" | "draining" | "drained" | "offline" | "deregistered";
/**
 * The only status of a pending registration.
 */
export type RegisterStatus = "registration_pending";
/**
 * What a pending registration waits for.
 */
export type WaitingFor = "chain" | "approval" | "other";
/**
 * Seconds since 1970-01-01T00:00:00Z.
 */
export type UnixSeconds = number;
/**
 * What became of a node's jobs.
 */
export type JobsStatus = "normal" | "at_risk" | "failed";
/**
 * Everything that changes state. Who may send what: [`fn@super::permission`].
 */
export type ExecuteMsg =
  | {
      update_params: {
        /**
         * What changes.
         */
        params: ParamsUpdate;
      };
    }
  | {
      propose_admin: {
        /**
         * Bech32 address.
         */
        admin?: string | null;
      };
    }
  | {
      accept_admin: {};
    }
  | {
      pause_registrations: {
        /**
         * Whether they are paused.
         */
        paused: boolean;
      };
    }
  | {
      create_cluster: {
        /**
         * Unique on the contract.
         */
        cluster_id: ClusterId;
        /**
         * https URL of the site's gateway.
         */
        gateway_endpoint?: string | null;
        /**
         * What of job ids becomes public.
         */
        job_ids?: JobIds;
        /**
         * For people; 1–64 printable ASCII characters; default: the id.
         */
        name?: string | null;
        /**
         * Addresses that may register, drain, resume; at most 16.
         */
        operators?: string[];
        /**
         * E.g. `eu-central`; up to 32 characters.
         */
        region?: string | null;
        /**
         * Ed25519 key that signs commands and tasks.
         */
        task_public_key?: AgentKey | null;
      };
    }
  | {
      update_cluster: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
        /**
         * New gateway URL; an empty text takes it away.
         */
        gateway_endpoint?: string | null;
        /**
         * New privacy of job ids: answers follow it at once, what comes on record from now on.
         */
        job_ids?: JobIds | null;
        /**
         * New name.
         */
        name?: string | null;
        /**
         * The whole new list.
         */
        operators?: string[] | null;
        /**
         * New region; an empty text takes it away.
         */
        region?: string | null;
      };
    }
  | {
      set_task_key: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
        /**
         * Base64 Ed25519 signature by the present key; absent only while none is set.
         */
        rotation_signature?: string | null;
        /**
         * The new key.
         */
        task_public_key: AgentKey;
      };
    }
  | {
      activate_cluster: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
      };
    }
  | {
      deactivate_cluster: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
      };
    }
  | {
      close_cluster: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
      };
    }
  | {
      propose_cluster_owner: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
        /**
         * Bech32 address.
         */
        owner?: string | null;
      };
    }
  | {
      accept_cluster_owner: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
      };
    }
  | {
      register_node: {
        /**
         * What the provider vouches for.
         */
        node_identity: NodeIdentity;
        /**
         * Base64 compressed secp256k1 key (33 bytes) of the owner or an operator.
         */
        provider_pubkey: string;
        /**
         * Base64 ADR-036 signature, 64 bytes r‖s, over [`crate::registration::canonical_registration`].
         */
        provider_signature: string;
        /**
         * Base64 Ed25519 signature by the old key over [`crate::registration::key_rotation_message`];
         * needed while a live node is registered under this id with another key.
         */
        rotation_signature?: string | null;
      };
    }
  | {
      deregister_node: {
        /**
         * May be left out when exactly one cluster has the node.
         */
        cluster_id?: ClusterId | null;
        /**
         * Which node.
         */
        node_id: NodeId;
      };
    }
  | {
      drain_node: {
        /**
         * May be left out when exactly one cluster has the node.
         */
        cluster_id?: ClusterId | null;
        /**
         * Which node.
         */
        node_id: NodeId;
        /**
         * For people; up to 128 printable ASCII characters.
         */
        reason?: string | null;
        /**
         * Until when OFFLINE does not become DEREGISTERED; default 7 days, at most 30.
         */
        until?: UnixSeconds | null;
      };
    }
  | {
      resume_node: {
        /**
         * May be left out when exactly one cluster has the node.
         */
        cluster_id?: ClusterId | null;
        /**
         * Which node.
         */
        node_id: NodeId;
      };
    }
  | {
      submit_reports: {
        /**
         * One group a cluster, none empty.
         */
        groups: ReportGroup[];
      };
    }
  | {
      sweep: {
        /**
         * Only this cluster; default: all, by a cursor that goes round.
         */
        cluster_id?: ClusterId | null;
        /**
         * Most pages to visit, 1–256; default 16.
         */
        limit?: number | null;
      };
    }
  | {
      prune: {
        /**
         * Most nodes to remove, 1–256; default 32.
         */
        limit?: number | null;
      };
    }
  | {
      anchor: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
        /**
         * Lower-case hex SHA-256.
         */
        digest: string;
        /**
         * What it is of: 1–32 of `[a-z0-9_-]`, e.g. `audit-head`.
         */
        kind: string;
      };
    };
/**
 * Every question the contract answers. Lists: `limit` default 30, at most 100; `start_after` is the
 * `next` of the answer before.
 */
export type QueryMsg =
  | {
      config: {};
    }
  | {
      params: {};
    }
  | {
      cluster: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
      };
    }
  | {
      clusters: {
        /**
         * Page size.
         */
        limit?: number | null;
        /**
         * Only this owner's.
         */
        owner?: string | null;
        /**
         * Cursor.
         */
        start_after?: string | null;
      };
    }
  | {
      aggregate: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
      };
    }
  | {
      node: {
        /**
         * May be left out when exactly one cluster has the node.
         */
        cluster_id?: ClusterId | null;
        /**
         * Which node.
         */
        node_id: NodeId;
      };
    }
  | {
      nodes: {
        /**
         * Conditions.
         */
        filter?: NodeFilter;
        /**
         * Page size.
         */
        limit?: number | null;
        /**
         * Cursor.
         */
        start_after?: string | null;
      };
    }
  | {
      nodes_by_ids: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
        /**
         * At most 50.
         */
        node_ids: NodeId[];
      };
    }
  | {
      relay: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
        /**
         * At most 100.
         */
        node_ids: NodeId[];
      };
    }
  | {
      jobs_at_risk: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
        /**
         * Page size.
         */
        limit?: number | null;
        /**
         * Cursor.
         */
        start_after?: string | null;
      };
    }
  | {
      raw_page: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
        /**
         * Page number, from 0.
         */
        page: number;
      };
    }
  | {
      anchors: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
        /**
         * Only this kind.
         */
        kind?: string | null;
        /**
         * Page size.
         */
        limit?: number | null;
        /**
         * Cursor.
         */
        start_after?: string | null;
      };
    }
  | {
      anchor: {
        /**
         * Which cluster.
         */
        cluster_id: ClusterId;
        /**
         * Lower-case hex SHA-256.
         */
        digest: string;
        /**
         * What it is of.
         */
        kind: string;
      };
    };
/**
 * How a task ended on the node.
 */
export type TaskOutcome = "completed" | "failed" | "expired" | "cancelled";
/**
 * A task's identifier, unique in its cluster; also a file name.
 */
export type TaskId = string;
/**
 * What a task asks for: the whole catalogue.
 */
export type TaskType =
  | "slice.topology_discover"
  | "slice.vm_provision"
  | "slice.vm_release"
  | "vm.launch"
  | "vm.terminate"
  | "allocation.provision_user"
  | "allocation.deprovision_user"
  | "diag.health_probe"
  | "node.prerequisites_install";
/**
 * The only purpose of a [`JoinClaims`].
 */
export type JoinPurpose = "join";

/**
 * Answer of `POST …/{node_id}/certificate/challenge`.
 */
export interface ChallengeResponse {
  /**
   * Base64 of 32 random bytes, used once.
   */
  challenge: string;
  /**
   * Until when it counts.
   */
  expires_at: Rfc3339;
}
/**
 * Body of `POST …/{node_id}/certificate/recover`, for a certificate that has expired.
 */
export interface RecoverRequest {
  /**
   * The challenge as it was given.
   */
  challenge: string;
  /**
   * PKCS#10 request as PEM.
   */
  csr: string;
  /**
   * Base64 Ed25519 signature by the agent's key over [`recover_message`].
   */
  signature: string;
}
/**
 * Body of `POST …/{node_id}/certificate` over mutual TLS.
 */
export interface CertificateRequest {
  /**
   * PKCS#10 request as PEM.
   */
  csr: string;
}
/**
 * An amount of one denomination; the amount is an integer string, as everywhere in Cosmos.
 */
export interface Coin {
  /**
   * Integer in decimal notation.
   */
  amount: string;
  /**
   * Denomination, e.g. `stake`.
   */
  denom: string;
}
/**
 * All parameters. Durations are whole seconds; ranges are the specification's.
 */
export interface Params {
  /**
   * Most reports in one message: 1024–8192, default 1024.
   */
  batch_limit: number;
  /**
   * Who may create clusters.
   */
  cluster_creation: ClusterCreation;
  /**
   * Paid with `create_cluster`, against squatting on ids, given back by `close_cluster`; absent: nothing to pay.
   */
  cluster_deposit?: Coin | null;
  /**
   * Silence after which a sweep deregisters: 600–86400, default 3600.
   */
  deregistration_delay: number;
  /**
   * Normal heartbeat interval: 10–120, default 30.
   */
  heartbeat_interval: number;
  /**
   * Silence after which a node is STALE: 60–600, default 120.
   */
  heartbeat_timeout: number;
  /**
   * Silence after which a node is OFFLINE: 120–1800, default 300.
   */
  offline_threshold: number;
  /**
   * How long a deregistered node's metadata stays: 86400 (a day) – 31536000 (a year), default 30 days.
   */
  retention: number;
}
/**
 * A node's present registration, as gateway and chain know it.
 */
export interface RegistrationRecord {
  /**
   * The chain.
   */
  chain_id: string;
  /**
   * The cluster.
   */
  cluster_id: ClusterId;
  /**
   * Bech32 address of the registry contract.
   */
  contract: string;
  /**
   * Registration epoch; a u64 as a string.
   */
  epoch: string;
  /**
   * The hardware that was registered, if this gateway knows: lower-case hex SHA-256.
   */
  hardware_fingerprint?: string | null;
  /**
   * What of job ids the section may hold.
   */
  job_ids?: JobIds;
  /**
   * Highest sequence number that the gateway or the chain has seen, or that a recovery before may have led to; 0 if none.
   * Who has lost its count goes on a block of 64 above it.
   */
  last_sequence: number;
  /**
   * The node.
   */
  node_id: NodeId;
  /**
   * The contract's parameters.
   */
  params: Params;
  /**
   * Bech32 address of the cluster's owner.
   */
  provider_address: string;
  /**
   * Key that signs commands and tasks, once the cluster has one.
   */
  task_public_key?: AgentKey | null;
}
/**
 * Answer of renewal and recovery.
 */
export interface CertificateResponse {
  /**
   * The gateway's CA, PEM.
   */
  ca: string;
  /**
   * The client certificate and its chain, PEM.
   */
  certificate: string;
  /**
   * What is on record of the node, with recovery only: an agent that has lost its disk goes on by it.
   */
  registration?: RegistrationRecord | null;
}
/**
 * A command as it stands in a heartbeat's answer. The type stays text, so that a newer gateway's
 * command does not make the whole answer unreadable; [`verify_command`] gives it its type.
 */
export interface Command {
  /**
   * Unique; a command that was carried out is not carried out again.
   */
  command_id: string;
  /**
   * Not to be begun afterwards.
   */
  deadline: Rfc3339;
  /**
   * When it was signed.
   */
  issued_at: Rfc3339;
  /**
   * Base64 of 16 random bytes.
   */
  nonce: string;
  /**
   * Raw JSON object; its bytes as transmitted are signed.
   */
  parameters?: {
    [k: string]: unknown;
  };
  /**
   * Base64 Ed25519 signature by the task key over [`command_message`].
   */
  signature: string;
  /**
   * What is to be done.
   */
  type: CommandType;
}
/**
 * What an agent says of a command that it was given; stands beside `heartbeat` and `auth` of its next heartbeat.
 * With the first one the gateway stops telling the command.
 */
export interface Acknowledgement {
  /**
   * Why it was refused or failed; a code's word.
   */
  code?: string | null;
  /**
   * The command's `command_id`.
   */
  command_id: string;
  /**
   * The same for people, or a diagnostic's result; printable text.
   */
  detail?: string | null;
  /**
   * All that a diagnostic has found: a JSON object as text. One in a heartbeat.
   */
  report?: string | null;
  /**
   * What became of it.
   */
  status: AcknowledgementStatus;
}
/**
 * Cores, memory, GPUs and storage. GB means GiB; absent is unknown.
 */
export interface Capacity {
  /**
   * Cores in use by work.
   */
  cpu_cores_allocated?: number | null;
  /**
   * Cores free.
   */
  cpu_cores_available: number;
  /**
   * Cores, at least 1.
   */
  cpu_cores_total: number;
  /**
   * Such as `NVIDIA A100 80GB`.
   */
  gpu_type?: string | null;
  /**
   * GPUs in use by work.
   */
  gpus_allocated?: number | null;
  /**
   * GPUs free.
   */
  gpus_available?: number | null;
  /**
   * GPUs.
   */
  gpus_total?: number | null;
  /**
   * Memory in use by work, in GiB.
   */
  memory_gb_allocated?: number | null;
  /**
   * Memory free, in GiB.
   */
  memory_gb_available: number;
  /**
   * Memory in GiB, at least 1.
   */
  memory_gb_total: number;
  /**
   * Storage in use by work, in GiB.
   */
  storage_gb_allocated?: number | null;
  /**
   * Storage free, in GiB.
   */
  storage_gb_available?: number | null;
  /**
   * Storage in GiB.
   */
  storage_gb_total?: number | null;
}
/**
 * Health figures; absent is unknown.
 */
export interface Health {
  /**
   * CPU busy.
   */
  cpu_utilization_percent?: Percent | null;
  /**
   * Busiest disk.
   */
  disk_io_utilization_percent?: Percent | null;
  /**
   * Errors in the last 24 hours.
   */
  error_count_24h?: number | null;
  /**
   * GPU memory in use.
   */
  gpu_memory_utilization_percent?: Percent | null;
  /**
   * Hottest GPU.
   */
  gpu_temperature_celsius?: number | null;
  /**
   * GPUs busy.
   */
  gpu_utilization_percent?: Percent | null;
  /**
   * The last error, at most 256 characters.
   */
  last_error_message?: string | null;
  /**
   * Load average over 15 minutes.
   */
  load_average_15m?: FixedPoint6 | null | "";
  /**
   * Load average over 1 minute.
   */
  load_average_1m?: FixedPoint6 | null | "";
  /**
   * Load average over 5 minutes.
   */
  load_average_5m?: FixedPoint6 | null | "";
  /**
   * Memory in use.
   */
  memory_utilization_percent?: Percent | null;
  /**
   * Busiest network interface.
   */
  network_utilization_percent?: Percent | null;
  /**
   * What Slurm says.
   */
  slurm_state?: SlurmState | null | "";
  /**
   * The judgement.
   */
  status: HealthStatus;
  /**
   * CPU temperature.
   */
  temperature_celsius?: number | null;
  /**
   * Seconds since boot.
   */
  uptime_seconds?: number | null;
  /**
   * Warnings in the last 24 hours.
   */
  warning_count_24h?: number | null;
}
/**
 * The payload of a heartbeat. What is absent is unknown.
 */
export interface Heartbeat {
  /**
   * The agent's version (semver).
   */
  agent_version?: string | null;
  /**
   * What the node has and what of it is free.
   */
  capacity: Capacity;
  /**
   * Its cluster.
   */
  cluster_id: ClusterId;
  /**
   * How it is.
   */
  health: Health;
  /**
   * Work.
   */
  jobs?: Jobs | null;
  /**
   * Round trips.
   */
  latency?: Latency | null;
  /**
   * The node.
   */
  node_id: NodeId;
  /**
   * Rises with every heartbeat of an epoch: 1 to 2³²−1.
   */
  sequence_number: number;
  /**
   * Daemons.
   */
  services?: Services | null;
  /**
   * When it was made, RFC 3339 with up to nanoseconds.
   */
  timestamp: Rfc3339;
}
/**
 * Work on this node; absent is unknown.
 */
export interface Jobs {
  /**
   * Ids of what runs, at most 512.
   *
   * @maxItems 512
   */
  active_job_ids?: string[] | null;
  /**
   * Completed in the last 24 hours.
   */
  completed_24h?: number | null;
  /**
   * Failed in the last 24 hours.
   */
  failed_24h?: number | null;
  /**
   * What is already assigned to this node and waits.
   */
  pending_count?: number | null;
  /**
   * What runs on this node: Slurm jobs, leased slices, VMs, containers, user allocations. Where it is absent, what
   * `active_job_ids` names does.
   */
  running_count?: number | null;
}
/**
 * Round trips; absent is unknown.
 */
export interface Latency {
  /**
   * Mean over the cluster's nodes measured, in microseconds.
   */
  avg_cluster_latency_us?: number | null;
  /**
   * To the chain, estimated, in milliseconds.
   */
  chain_latency_ms?: number | null;
  /**
   * To the provider daemon, in microseconds.
   */
  gateway_latency_us?: number | null;
  /**
   * One entry for each node measured, at most 64.
   *
   * @maxItems 64
   */
  measurements?: LatencyMeasurement[] | null;
}
/**
 * One node's round trip.
 */
export interface LatencyMeasurement {
  /**
   * Round trip in microseconds; absent only where every packet was lost.
   */
  latency_us?: number | null;
  /**
   * When.
   */
  measured_at: Rfc3339;
  /**
   * Packets lost.
   */
  packet_loss_percent: Percent;
  /**
   * The node measured.
   */
  target_node_id: NodeId;
}
/**
 * Daemons on the node; absent is unknown.
 */
export interface Services {
  /**
   * Which container runtime there is.
   */
  container_runtime?: ContainerRuntime | null | "";
  /**
   * Its version.
   */
  container_runtime_version?: string | null;
  /**
   * Whether munged runs.
   */
  munge_running?: boolean | null;
  /**
   * Whether slurmd runs.
   */
  slurmd_running?: boolean | null;
  /**
   * Its version.
   */
  slurmd_version?: string | null;
}
/**
 * `auth` of a heartbeat. Base64 is the standard alphabet with padding; `null` and the empty text count as absent.
 */
export interface HeartbeatAuth {
  /**
   * Same as `heartbeat.node_id`.
   */
  node_id?: string | null;
  /**
   * Base64 of 16 random bytes.
   */
  nonce: string;
  /**
   * The registered key, base64.
   */
  public_key?: string | null;
  /**
   * Base64 of the 70-byte report.
   */
  report?: string | null;
  /**
   * Base64 Ed25519 signature over tag ‖ report.
   */
  report_signature?: string | null;
  /**
   * Base64 of the second section, while the chain does not hold it yet.
   */
  section?: string | null;
  /**
   * Base64 Ed25519 signature over [`auth_message`].
   */
  signature: string;
  /**
   * Whole seconds of `heartbeat.timestamp`.
   */
  timestamp?: number | null;
}
/**
 * Body of `POST /api/v1/hpc/nodes/{node_id}/heartbeat`.
 *
 * The payload stays the bytes that were sent: they are what is signed and hashed.
 */
export interface HeartbeatRequest {
  /**
   * What became of commands; at most [`MAX_ACKNOWLEDGEMENTS`], the rest with the next heartbeat.
   */
  acknowledgements?: Acknowledgement[] | null;
  /**
   * Signatures and report.
   */
  auth: HeartbeatAuth;
  /**
   * The payload; its raw bytes are signed.
   */
  heartbeat: Heartbeat;
}
/**
 * The node as the chain knows it.
 */
export interface ChainStatus {
  /**
   * Registration epoch.
   */
  epoch: number;
  /**
   * The chain's last height that the gateway has seen.
   */
  height: number;
  /**
   * Round trip from the gateway to its chain endpoint, in milliseconds; absent before the first.
   */
  latency_ms?: number | null;
  /**
   * Effective state.
   */
  node_state: NodeState;
  /**
   * Sequence of the node's last report on chain; 0 if none in this epoch.
   */
  settled_sequence: number;
}
/**
 * Settings that the gateway changes.
 */
export interface ConfigUpdates {
  /**
   * What of job ids the section may hold from now on.
   */
  job_ids?: JobIds | null;
  /**
   * Ids of nodes to measure.
   */
  latency_probe_targets?: NodeId[] | null;
  /**
   * How long local metrics stay.
   */
  metrics_retention_hours?: number | null;
  /**
   * Base interval of sampling.
   */
  sampling_interval_seconds?: number | null;
}
/**
 * What became of a heartbeat, and what the node should do next.
 */
export interface HeartbeatResponse {
  /**
   * Whether it is durably stored and on its way to the chain.
   */
  accepted: boolean;
  /**
   * What the chain knows of the node.
   */
  chain?: ChainStatus | null;
  /**
   * Signed orders.
   */
  commands?: Command[];
  /**
   * Settings to take over.
   */
  config_updates?: ConfigUpdates | null;
  /**
   * With `accepted: false` why not; with `accepted: true` notices.
   */
  errors?: Notice[];
  /**
   * Seconds until the next heartbeat should come: 10 to 120.
   */
  next_heartbeat_seconds: number;
  /**
   * Nodes to measure latency to.
   */
  peers?: Peer[];
  /**
   * Highest sequence number durably accepted; 0 if none.
   */
  sequence_ack: number;
  /**
   * Rotations of the key that signs them, oldest first; only beside orders.
   */
  task_keys?: KeyRotation[];
  /**
   * The gateway's clock.
   */
  timestamp: Rfc3339;
}
/**
 * A refusal or a notice.
 */
export interface Notice {
  /**
   * The code's word; a client may meet one that it does not know.
   */
  code: string;
  /**
   * JSON path of the field at fault.
   */
  field?: string | null;
  /**
   * What is wrong and what to do.
   */
  message: string;
}
/**
 * A node that answers latency probes.
 */
export interface Peer {
  /**
   * IP address.
   */
  address: string;
  /**
   * Its id, within the same cluster.
   */
  node_id: NodeId;
  /**
   * UDP port.
   */
  port: number;
  /**
   * Its agent key.
   */
  public_key: AgentKey;
}
/**
 * The old task key's word for the new one. An agent that pinned the old key pins the new one from here on.
 */
export interface KeyRotation {
  /**
   * Base64 of the key that counts from here on.
   */
  new_key: AgentKey;
  /**
   * Base64 of the key that signs.
   */
  old_key: AgentKey;
  /**
   * Base64 Ed25519 signature by the old key over [`rotation_message`].
   */
  signature: string;
}
/**
 * Body of the answer: `{"response": {…}}`.
 */
export interface HeartbeatResponseBody {
  /**
   * The answer.
   */
  response: HeartbeatResponse;
}
/**
 * `node_identity` of specification 000. Absent optional fields are left out of the signed JSON.
 */
export interface NodeIdentity {
  /**
   * Base64 Ed25519 public key of the agent.
   */
  agent_pubkey: AgentKey;
  /**
   * The parent cluster.
   */
  cluster_id: ClusterId;
  /**
   * Lower-case hex SHA-256 of the hardware's identifiers.
   */
  hardware_fingerprint?: string | null;
  /**
   * FQDN or short host name, at most 253 characters.
   */
  hostname?: string | null;
  /**
   * Unique within its cluster.
   */
  node_id: NodeId;
  /**
   * Bech32 address of the cluster's owner.
   */
  provider_address: string;
  /**
   * Base64 of 32 random bytes, used once.
   */
  registration_nonce: string;
  /**
   * RFC 3339; valid for 24 hours around block time.
   */
  registration_timestamp: Rfc3339;
}
/**
 * Body of every answer that is not a success.
 */
export interface Problem {
  /**
   * The code's word; a client may meet one that it does not know.
   */
  code: string;
  /**
   * What is wrong and what to do.
   */
  detail: string;
  /**
   * JSON path of the field at fault.
   */
  field?: string | null;
  /**
   * The HTTP status.
   */
  status: number;
  /**
   * The HTTP status text.
   */
  title: string;
  /**
   * Always `about:blank`: the code is the type.
   */
  type?: string;
}
/**
 * 202 with Retry-After: repeat the same request.
 */
export interface RegisterPending {
  /**
   * The code's word, `registration_pending` or what the chain last refused with for now.
   */
  code: string;
  /**
   * Always `registration_pending`.
   */
  status: RegisterStatus;
  /**
   * Whose turn it is.
   */
  waiting_for?: WaitingFor | null;
}
/**
 * A TPM 2.0's quote over [`attestation_data`], by a restricted signing key of its endorsement hierarchy.
 */
export interface Attestation {
  /**
   * The registers of the SHA-256 bank that were quoted, in rising order.
   */
  pcrs: Pcr[];
  /**
   * Base64 of the attestation key's `TPMT_PUBLIC`: ECDSA over NIST P-256 with SHA-256.
   */
  public: string;
  /**
   * Base64 of `TPMS_ATTEST`.
   */
  quote: string;
  /**
   * Base64 of the ECDSA signature over it (DER).
   */
  signature: string;
}
/**
 * A platform configuration register.
 */
export interface Pcr {
  /**
   * Its number, 0 to 23.
   */
  index: number;
  /**
   * Its value in lower-case hex.
   */
  sha256: string;
}
/**
 * Body of `POST /api/v1/hpc/nodes/register`. The same request may be repeated until the token expires.
 */
export interface RegisterRequest {
  /**
   * The agent's version (semver).
   */
  agent_version?: string | null;
  /**
   * A TPM's word for the machine; for the gateway alone, nothing of it goes to the chain.
   */
  attestation?: Attestation | null;
  /**
   * PKCS#10 request as PEM; of it only the key counts, subject and SAN come from the token.
   */
  csr: string;
  /**
   * Base64 Ed25519 signature by the agent's key over [`register_message`].
   */
  csr_signature: string;
  /**
   * Lower-case hex SHA-256 of the hardware's identifiers.
   */
  hardware_fingerprint?: string | null;
  /**
   * FQDN or short host name.
   */
  hostname?: string | null;
  /**
   * The node, with a join token, which names none.
   */
  node_id?: NodeId | null;
  /**
   * IP address at which peers reach that port; default: the one that the node's requests come from.
   */
  probe_address?: string | null;
  /**
   * UDP port that answers latency probes.
   */
  probe_port?: number | null;
  /**
   * The agent's key.
   */
  public_key: AgentKey;
  /**
   * Base64 of 32 fresh random bytes that the provider puts into the identity it signs; needed with
   * `rotation_signature`, which covers it.
   */
  registration_nonce?: string | null;
  /**
   * Base64 Ed25519 signature by the **old** agent key over
   * [`key_rotation_message`](crate::registration::key_rotation_message): replaces the key of a live node.
   */
  rotation_signature?: string | null;
  /**
   * The registration token (compact JWS).
   */
  token: string;
}
/**
 * 200: registered on chain.
 */
export interface RegisterResponse {
  /**
   * The gateway's CA, PEM.
   */
  ca: string;
  /**
   * The client certificate and its chain, PEM.
   */
  certificate: string;
  /**
   * The chain.
   */
  chain_id: string;
  /**
   * The cluster.
   */
  cluster_id: ClusterId;
  /**
   * Bech32 address of the registry contract.
   */
  contract: string;
  /**
   * Registration epoch; a u64 as a string.
   */
  epoch: string;
  /**
   * What of job ids the section may hold.
   */
  job_ids?: JobIds;
  /**
   * Highest sequence number that the gateway or the chain has seen; 0 if none.
   */
  last_sequence: number;
  /**
   * The node.
   */
  node_id: NodeId;
  /**
   * The contract's parameters.
   */
  params: Params;
  /**
   * Bech32 address of the cluster's owner.
   */
  provider_address: string;
  /**
   * How it came to be, oldest first: a token may be older than its rotations.
   */
  task_keys?: KeyRotation[];
  /**
   * Key that signs commands and tasks, once the cluster has one.
   */
  task_public_key?: AgentKey | null;
}
/**
 * Sums of a cluster (specification 000 "Aggregation", decision 25).
 */
export interface AggregateView {
  /**
   * Schedulable nodes.
   */
  active_nodes: number;
  /**
   * Over schedulable nodes.
   */
  available_cpu_cores: number;
  /**
   * Over schedulable nodes.
   */
  available_gpus: number;
  /**
   * GiB over schedulable nodes.
   */
  available_memory_gb: number;
  /**
   * GiB over schedulable nodes.
   */
  available_storage_gb: number;
  /**
   * Mean weighted by measurements, half up; 0 without measurements.
   */
  avg_cluster_latency_ms: number;
  /**
   * The same in microseconds.
   */
  avg_cluster_latency_us: number;
  /**
   * The same by type.
   */
  gpus_by_type: GpuCount[];
  /**
   * 0–1,000,000; the formula stands in `docs/protocol.md`.
   */
  health_score: number;
  /**
   * Nodes by recorded (or effective) state.
   */
  states: StateCounts;
  /**
   * All but DEREGISTERED.
   */
  total_nodes: number;
}
/**
 * Available GPUs of one type.
 */
export interface GpuCount {
  /**
   * Available on schedulable nodes.
   */
  available: number;
  /**
   * As agents name it.
   */
  gpu_type: string;
}
/**
 * Nodes by state.
 */
export interface StateCounts {
  /**
   * Reporting.
   */
  active: number;
  /**
   * Deregistered, metadata kept.
   */
  deregistered: number;
  /**
   * Drained.
   */
  drained: number;
  /**
   * Draining.
   */
  draining: number;
  /**
   * Silent beyond `offline_threshold`.
   */
  offline: number;
  /**
   * Registered, no heartbeat counted yet.
   */
  pending: number;
  /**
   * Silent beyond `heartbeat_timeout`.
   */
  stale: number;
}
/**
 * The block that an answer was read at.
 */
export interface BlockRef {
  /**
   * Height.
   */
  height: number;
  /**
   * Its time.
   */
  time: UnixSeconds;
}
/**
 * Recorded and, for clusters of up to 256 pages, effective sums.
 */
export interface AggregateAnswer {
  /**
   * Block of this answer.
   */
  block: BlockRef;
  /**
   * Which cluster.
   */
  cluster_id: ClusterId;
  /**
   * What a sweep would make of it now; absent for larger clusters.
   */
  effective?: AggregateView | null;
  /**
   * As of the last write.
   */
  recorded: AggregateView;
  /**
   * Block time of the last message that wrote the cluster's sums: a batch, a registration, a sweep that changed a
   * node, a switch on or off. Whether a figure became another does not matter.
   */
  recorded_at: UnixSeconds;
}
/**
 * One anchored digest.
 */
export interface AnchorView {
  /**
   * Lower-case hex SHA-256.
   */
  digest: string;
  /**
   * Height of its block.
   */
  height: number;
  /**
   * What it is of.
   */
  kind: string;
  /**
   * Who anchored it.
   */
  sender: string;
  /**
   * Time of its block.
   */
  time: UnixSeconds;
}
/**
 * One anchor, if there.
 */
export interface AnchorAnswer {
  /**
   * Absent: never anchored.
   */
  anchor?: AnchorView | null;
  /**
   * Block of this answer.
   */
  block: BlockRef;
}
/**
 * A page of anchors.
 */
export interface AnchorsAnswer {
  /**
   * Oldest first.
   */
  anchors: AnchorView[];
  /**
   * Block of this answer.
   */
  block: BlockRef;
  /**
   * `start_after` of the next call; absent at the end.
   */
  next?: string | null;
}
/**
 * One cluster.
 */
export interface Cluster {
  /**
   * Whether its nodes may become ACTIVE and be scheduled on.
   */
  active: boolean;
  /**
   * Unique id.
   */
  cluster_id: ClusterId;
  /**
   * When it was created.
   */
  created_at: UnixSeconds;
  /**
   * What was paid for it; `close_cluster` gives it to the owner. Absent: nothing.
   */
  deposit?: Coin | null;
  /**
   * URL of the gateway.
   */
  gateway_endpoint?: string | null;
  /**
   * What of job ids is public.
   */
  job_ids: JobIds;
  /**
   * For people.
   */
  name: string;
  /**
   * May register, drain, resume.
   */
  operators: string[];
  /**
   * Bech32 address of the provider.
   */
  owner: string;
  /**
   * Pages in use.
   */
  pages: number;
  /**
   * Offered to, in a transfer.
   */
  proposed_owner?: string | null;
  /**
   * Where it stands.
   */
  region?: string | null;
  /**
   * Signs commands and tasks.
   */
  task_public_key?: AgentKey | null;
}
/**
 * One cluster with its recorded sums.
 */
export interface ClusterAnswer {
  /**
   * Sums as of the last write.
   */
  aggregate: AggregateView;
  /**
   * Block of this answer.
   */
  block: BlockRef;
  /**
   * The cluster.
   */
  cluster: Cluster;
}
/**
 * A page of clusters.
 */
export interface ClustersAnswer {
  /**
   * Block of this answer.
   */
  block: BlockRef;
  /**
   * In order of id.
   */
  clusters: Cluster[];
  /**
   * `start_after` of the next call; absent at the end.
   */
  next?: string | null;
}
/**
 * Administration.
 */
export interface ConfigAnswer {
  /**
   * Who may change parameters.
   */
  admin: string;
  /**
   * Block of this answer.
   */
  block: BlockRef;
  /**
   * Chain id the contract runs on.
   */
  chain_id: string;
  /**
   * Contract name and version (cw2).
   */
  contract: string;
  /**
   * Storage layout version.
   */
  layout: number;
  /**
   * Who has been offered the role.
   */
  proposed_admin?: string | null;
  /**
   * Whether registrations are paused.
   */
  registrations_paused: boolean;
  /**
   * Semantic version.
   */
  version: string;
}
/**
 * Jobs of a node as far as the cluster's privacy setting shows them.
 */
export interface JobsOnRecord {
  /**
   * Ids, or their hashes, or nothing.
   */
  active_job_ids: string[];
  /**
   * How many ids the agent reported.
   */
  count: number;
  /**
   * Whether jobs run, or may run: nothing is known of them.
   */
  running: boolean;
  /**
   * What became of them.
   */
  status: JobsStatus;
}
/**
 * A node whose jobs are at risk or failed.
 */
export interface NodeJobs {
  /**
   * Its jobs.
   */
  jobs: JobsOnRecord;
  /**
   * Which node.
   */
  node_id: NodeId;
  /**
   * Its effective state.
   */
  state: NodeState;
}
/**
 * A page of nodes with jobs at risk or failed.
 */
export interface JobsAnswer {
  /**
   * Block of this answer.
   */
  block: BlockRef;
  /**
   * `start_after` of the next call; absent at the end.
   */
  next?: string | null;
  /**
   * In order of page, slot.
   */
  nodes: NodeJobs[];
}
/**
 * A provider's drain in force.
 */
export interface Drain {
  /**
   * When.
   */
  ordered_at: UnixSeconds;
  /**
   * Who ordered it.
   */
  ordered_by: string;
  /**
   * For people.
   */
  reason?: string | null;
  /**
   * Until when OFFLINE does not become DEREGISTERED.
   */
  until: UnixSeconds;
}
/**
 * One latency measurement on record.
 */
export interface LatencyOnRecord {
  /**
   * Microseconds.
   */
  latency_us: number;
  /**
   * When.
   */
  measured_at: UnixSeconds;
  /**
   * 0–100.
   */
  packet_loss_percent: number;
  /**
   * Measured peer.
   */
  target_node_id: string;
}
/**
 * NodeMetadata.
 */
export interface NodeView {
  /**
   * Whether a scheduler may use it (decision 19).
   */
  active: boolean;
  /**
   * Seconds since then at this block.
   */
  age_seconds?: number | null;
  /**
   * The agent's key.
   */
  agent_pubkey: AgentKey;
  /**
   * Semantic version, from the section.
   */
  agent_version?: string | null;
  /**
   * Milliseconds, half up.
   */
  avg_latency_ms: number;
  /**
   * Microseconds.
   */
  avg_latency_us: number;
  /**
   * The cluster.
   */
  cluster_id: ClusterId;
  /**
   * A provider's drain in force.
   */
  drain?: Drain | null;
  /**
   * Registration epoch.
   */
  epoch: number;
  /**
   * From the registration.
   */
  hardware_fingerprint?: string | null;
  /**
   * As the agent reported it; absent before the first report.
   */
  health_status?: string | null;
  /**
   * From the registration.
   */
  hostname?: string | null;
  /**
   * Its jobs.
   */
  jobs: JobsOnRecord;
  /**
   * Last heartbeat that counted; absent before the first.
   */
  last_heartbeat?: UnixSeconds | null;
  /**
   * From the section.
   */
  latency_measurements: LatencyOnRecord[];
  /**
   * Unique within the cluster.
   */
  node_id: NodeId;
  /**
   * Page of its slot.
   */
  page: number;
  /**
   * The cluster's owner when the node was registered.
   */
  provider_address: string;
  /**
   * What is recorded.
   */
  recorded_state: NodeState;
  /**
   * Times it left OFFLINE by a report.
   */
  recovery_count: number;
  /**
   * When this epoch began.
   */
  registered_at: UnixSeconds;
  /**
   * Available.
   */
  resources: Resources;
  /**
   * Sequence number of the last report.
   */
  sequence: number;
  /**
   * Slot in the page.
   */
  slot: number;
  /**
   * What a sweep would record now.
   */
  state: NodeState;
  /**
   * Sum of those silences.
   */
  total_downtime_seconds: number;
  /**
   * Totals; absent before the first section.
   */
  totals?: Totals | null;
}
/**
 * Available (not total) resources, by the specification's mapping.
 */
export interface Resources {
  /**
   * Available cores.
   */
  cpu_cores: number;
  /**
   * Absent when unknown or none.
   */
  gpu_type?: string | null;
  /**
   * Available GPUs.
   */
  gpus: number;
  /**
   * Available GiB.
   */
  memory_gb: number;
  /**
   * Available GiB.
   */
  storage_gb: number;
}
/**
 * Totals of a node, from its second section.
 */
export interface Totals {
  /**
   * Cores.
   */
  cpu_cores: number;
  /**
   * GPUs.
   */
  gpus: number;
  /**
   * GiB.
   */
  memory_gb: number;
  /**
   * GiB.
   */
  storage_gb: number;
}
/**
 * One node.
 */
export interface NodeAnswer {
  /**
   * Block of this answer.
   */
  block: BlockRef;
  /**
   * The node.
   */
  node: NodeView;
}
/**
 * A page of nodes.
 */
export interface NodesAnswer {
  /**
   * Block of this answer.
   */
  block: BlockRef;
  /**
   * `start_after` of the next call; absent at the end. A page may hold fewer than `limit`, or none.
   */
  next?: string | null;
  /**
   * In order of cluster, page, slot.
   */
  nodes: NodeView[];
}
/**
 * Data returned by `prune`.
 */
export interface PruneAnswer {
  /**
   * Whether nothing more is due.
   */
  done: boolean;
  /**
   * Nodes removed.
   */
  removed: number;
}
/**
 * Raw bytes, base64; the layout stands in `docs/protocol.md`.
 */
export interface RawPageAnswer {
  /**
   * Block of this answer.
   */
  block: BlockRef;
  /**
   * Hot page.
   */
  hot: string;
  /**
   * Key page.
   */
  keys: string;
  /**
   * Section page.
   */
  sections: string;
  /**
   * Statistics page.
   */
  stats: string;
}
/**
 * Data returned by `register_node`.
 */
export interface RegisterAnswer {
  /**
   * Registration epoch.
   */
  epoch: number;
  /**
   * Page of its slot.
   */
  page: number;
  /**
   * Slot in the page.
   */
  slot: number;
}
/**
 * What a relayer needs of one node.
 */
export interface RelayView {
  /**
   * The agent's key.
   */
  agent_pubkey: AgentKey;
  /**
   * Whether a provider's drain is in force.
   */
  drain?: Drain | null;
  /**
   * Registration epoch.
   */
  epoch: number;
  /**
   * Last heartbeat that counted.
   */
  last_heartbeat: UnixSeconds;
  /**
   * Which node.
   */
  node_id: NodeId;
  /**
   * Since when OFFLINE is on record, while it is.
   */
  offline_since?: UnixSeconds | null;
  /**
   * Page of its slot.
   */
  page: number;
  /**
   * Recorded state.
   */
  recorded_state: NodeState;
  /**
   * Hex of the stored section digest (16 bytes); zeros before the first.
   */
  section_digest: string;
  /**
   * Last sequence on chain in this epoch.
   */
  sequence: number;
  /**
   * Slot in the page.
   */
  slot: number;
  /**
   * Effective state.
   */
  state: NodeState;
}
/**
 * For relayers.
 */
export interface RelayAnswer {
  /**
   * Block of this answer.
   */
  block: BlockRef;
  /**
   * Known ones of the nodes asked for.
   */
  nodes: RelayView[];
}
/**
 * Data returned by `submit_reports`. Items are counted from 0 over all groups in order; those that
 * are listed nowhere were accepted without a notice. A group whose framing cannot be read counts in
 * `bad_groups` and its unread items in nothing.
 */
export interface SubmitAnswer {
  /**
   * How many were accepted.
   */
  accepted: number;
  /**
   * `[group, code number]` of groups that could not be read to their end.
   */
  bad_groups?: [unknown, unknown][];
  /**
   * `[item, code number]` of accepted ones with a notice.
   */
  notices?: [unknown, unknown][];
  /**
   * `[item, code number]` of each refused one.
   */
  refused?: [unknown, unknown][];
}
/**
 * Data returned by `sweep`.
 */
export interface SweepAnswer {
  /**
   * Whether the walk has come to the end and will begin anew.
   */
  done: boolean;
  /**
   * Pages visited.
   */
  pages: number;
  /**
   * Transitions recorded.
   */
  transitions: number;
}
/**
 * A change of some parameters; what is absent stays.
 */
export interface ParamsUpdate {
  /**
   * See [`Params::batch_limit`].
   */
  batch_limit?: number | null;
  /**
   * See [`Params::cluster_creation`].
   */
  cluster_creation?: ClusterCreation | null;
  /**
   * See [`Params::cluster_deposit`]; an amount of "0" removes the deposit.
   */
  cluster_deposit?: Coin | null;
  /**
   * See [`Params::deregistration_delay`].
   */
  deregistration_delay?: number | null;
  /**
   * See [`Params::heartbeat_interval`].
   */
  heartbeat_interval?: number | null;
  /**
   * See [`Params::heartbeat_timeout`].
   */
  heartbeat_timeout?: number | null;
  /**
   * See [`Params::offline_threshold`].
   */
  offline_threshold?: number | null;
  /**
   * See [`Params::retention`].
   */
  retention?: number | null;
}
/**
 * Reports of one cluster, encoded by [`crate::report::batch`].
 */
export interface ReportGroup {
  /**
   * The cluster all the reports belong to.
   */
  cluster_id: ClusterId;
  /**
   * Base64 of the batch bytes.
   */
  reports: string;
}
/**
 * Creates the contract.
 */
export interface InstantiateMsg {
  /**
   * Bech32 address that may change parameters (a governance address works); default: the sender.
   */
  admin?: string | null;
  /**
   * Parameters that differ from the defaults.
   */
  params?: ParamsUpdate;
}
/**
 * Migrates the contract's storage from the layout before.
 */
export interface MigrateMsg {}
/**
 * Which nodes a list query wants; all given conditions must hold.
 */
export interface NodeFilter {
  /**
   * Only this cluster.
   */
  cluster_id?: ClusterId | null;
  /**
   * Exactly this GPU type.
   */
  gpu_type?: string | null;
  /**
   * At least so many cores available.
   */
  min_cores?: number | null;
  /**
   * At least so many GPUs available.
   */
  min_gpus?: number | null;
  /**
   * At least so much memory available, GiB.
   */
  min_memory_gb?: number | null;
  /**
   * Only clusters of this owner.
   */
  provider?: string | null;
  /**
   * Only schedulable nodes (decision 19), or only the others.
   */
  schedulable?: boolean | null;
  /**
   * Only this effective state.
   */
  state?: NodeState | null;
}
/**
 * `sampling_config` of the specification.
 */
export interface SamplingConfig {
  /**
   * Interval of heartbeats: 10–120.
   */
  base_interval_seconds?: number;
  /**
   * Reports in one batch: 1–1024.
   */
  batch_max_size?: number;
  /**
   * How often the gateway submits a batch: 1–300.
   */
  batch_submit_interval_seconds?: number;
  /**
   * Of [`MetricCategory::Capacity`]: 10–60.
   */
  capacity_interval_seconds?: number;
  /**
   * Of [`MetricCategory::HealthStatus`]: 10–60.
   */
  health_interval_seconds?: number;
  /**
   * Of [`MetricCategory::Latency`]: 60–600.
   */
  latency_interval_seconds?: number;
  /**
   * Probes to each peer: 1–16.
   */
  latency_probe_count?: number;
  /**
   * A probe without an answer is lost after this: 10–10000 ms.
   */
  latency_probe_timeout_ms?: number;
  /**
   * Samples kept while the gateway cannot be reached: 1–10000.
   */
  metrics_buffer_size?: number;
  /**
   * Of [`MetricCategory::Utilization`]: 5–30.
   */
  utilization_interval_seconds?: number;
}
/**
 * How far a task is. Sent when it begins, at each phase, and before the lease runs out.
 */
export interface ProgressRequest {
  /**
   * When the phase began, by the node's clock.
   */
  at: Rfc3339;
  /**
   * For people.
   */
  message?: string | null;
  /**
   * Name of the phase; `begun` at the beginning.
   */
  phase: string;
  /**
   * Lower-case hex of the task's hash.
   */
  task_hash: string;
}
/**
 * A result as the agent sends it: a task on record as done was done on that node.
 */
export interface TaskResult {
  /**
   * Why it was not done; a code's word.
   */
  code?: string | null;
  /**
   * The same for people.
   */
  detail?: string | null;
  /**
   * When it ended.
   */
  finished_at: Rfc3339;
  /**
   * How it ended.
   */
  outcome: TaskOutcome;
  /**
   * Raw JSON object by the type's schema; of a task that failed, what was found. Its bytes are signed.
   */
  result: {
    [k: string]: unknown;
  };
  /**
   * Base64 Ed25519 signature by the agent's key over [`result_message`].
   */
  signature: string;
  /**
   * When it was begun.
   */
  started_at: Rfc3339;
  /**
   * Lower-case hex of the task's hash.
   */
  task_hash: string;
}
/**
 * Takes a task back. It is signed as the task was: whoever has the gateway's TLS cannot end a tenant's machine half-way.
 */
export interface Cancellation {
  /**
   * Base64 Ed25519 signature by the cluster's task key over [`cancel_message`].
   */
  signature: string;
  /**
   * Lower-case hex of the task's hash.
   */
  task_hash: string;
  /**
   * The task.
   */
  task_id: TaskId;
}
/**
 * A task and how long the gateway waits for word of it.
 */
export interface Delivered {
  /**
   * How often it was delivered, this time included.
   */
  attempt: number;
  /**
   * Without progress or result within so many seconds it is delivered again.
   */
  lease_seconds: number;
  /**
   * The task.
   */
  task: Task;
}
/**
 * A task as it is delivered (specification 003). The type stays text, so that a task of tomorrow's catalogue is
 * refused by its code and not as bytes that cannot be read.
 */
export interface Task {
  /**
   * Not to be begun afterwards.
   */
  expires_at: Rfc3339;
  /**
   * When it was signed.
   */
  issued_at: Rfc3339;
  /**
   * Base64 of 16 random bytes.
   */
  nonce: string;
  /**
   * Raw JSON object; its bytes as transmitted are signed.
   */
  params: {
    [k: string]: unknown;
  };
  /**
   * Base64 Ed25519 signature by the cluster's task key over [`task_message`].
   */
  signature: string;
  /**
   * Unique in its cluster; what was carried out under an id is not carried out again.
   */
  task_id: TaskId;
  /**
   * What is to be done.
   */
  task_type: TaskType;
}
/**
 * What a node that waits is told; 204 without a body if there was nothing in time.
 */
export interface WaitAnswer {
  /**
   * Tasks to end.
   */
  cancel?: Cancellation[];
  /**
   * Rotations of the task key, oldest first.
   */
  task_keys?: KeyRotation[];
  /**
   * Tasks to begin; a task that the node knows was delivered again because its word was lost.
   */
  tasks?: Delivered[];
}
/**
 * What a token says. The agent pins CA, chain, contract and task key by it.
 */
export interface TokenClaims {
  /**
   * Lower-case hex SHA-256 of the gateway CA's DER.
   */
  ca_sha256: string;
  /**
   * The chain.
   */
  chain_id: string;
  /**
   * Its cluster.
   */
  cluster_id: ClusterId;
  /**
   * Bech32 address of the registry contract.
   */
  contract: string;
  /**
   * The gateway's URL.
   */
  endpoint?: string | null;
  /**
   * From when on it no longer counts.
   */
  exp: UnixSeconds;
  /**
   * When it was issued.
   */
  iat: UnixSeconds;
  /**
   * Who issued it: the gateway.
   */
  iss: string;
  /**
   * Names this token; used once.
   */
  jti: string;
  /**
   * Bech32 address of the cluster's owner.
   */
  provider_address?: string | null;
  /**
   * The agent's key.
   */
  pubkey: AgentKey;
  /**
   * The node.
   */
  sub: NodeId;
  /**
   * Key that signs commands and tasks, once the cluster has one.
   */
  task_key?: AgentKey | null;
}
/**
 * What a join token says: as [`TokenClaims`] without node and key. Several nodes of the cluster register with
 * it, each under the `node_id` and with the key of its request.
 */
export interface JoinClaims {
  /**
   * Lower-case hex SHA-256 of the gateway CA's DER.
   */
  ca_sha256: string;
  /**
   * The chain.
   */
  chain_id: string;
  /**
   * The cluster.
   */
  cluster_id: ClusterId;
  /**
   * Bech32 address of the registry contract.
   */
  contract: string;
  /**
   * The gateway's URL.
   */
  endpoint?: string | null;
  /**
   * From when on it no longer counts.
   */
  exp: UnixSeconds;
  /**
   * When it was issued.
   */
  iat: UnixSeconds;
  /**
   * Who issued it: the gateway.
   */
  iss: string;
  /**
   * Names this token.
   */
  jti: string;
  /**
   * Bech32 address of the cluster's owner.
   */
  provider_address?: string | null;
  /**
   * Always `join`; tells it from a node's token.
   */
  purpose: JoinPurpose;
  /**
   * Key that signs commands and tasks, once the cluster has one.
   */
  task_key?: AgentKey | null;
}
