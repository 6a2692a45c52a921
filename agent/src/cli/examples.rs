//! Examples of every command's help.

pub(super) const ALL: &str = "\
Examples:
  virtengine-node-agent keygen
  virtengine-node-agent doctor
  virtengine-node-agent register
  virtengine-node-agent run
  virtengine-node-agent status

Exit codes: 0 done, 1 failed (status, doctor: not healthy), 2 wrong usage or configuration, or a token that does not fit
this node, 3 refused by the gateway or not registered, 4 not within the time given, 10 stopped by order of the provider
(run).";

pub(super) const KEYGEN: &str = "\
Examples:
  virtengine-node-agent keygen --output-dir /etc/virtengine/node-agent/keys
  virtengine-node-agent keygen --output json
  virtengine-node-agent keygen --store tpm
  virtengine-node-agent keygen --store pkcs11 --pkcs11-module /usr/lib/softhsm/libsofthsm2.so --pkcs11-token node --pin-file /etc/virtengine/node-agent/pin";

pub(super) const KEY: &str = "\
Examples:
  virtengine-node-agent key show
  virtengine-node-agent key rotate";

pub(super) const KEY_SHOW: &str = "\
Examples:
  virtengine-node-agent key show
  virtengine-node-agent key show --key /etc/virtengine/node-agent/keys/agent.key --output json
  virtengine-node-agent key show --attestation";

pub(super) const KEY_MIGRATE: &str = "\
Examples:
  virtengine-node-agent key migrate --store tpm
  virtengine-node-agent key migrate --store file --key /etc/virtengine/node-agent/keys/agent.key";

pub(super) const KEY_ROTATE: &str = "\
Examples:
  virtengine-node-agent key rotate                                   # makes the new key, says what to ask the provider for
  virtengine-node-agent key rotate --token-file /etc/virtengine/node-agent/next-token
  virtengine-node-agent key rotate --store pkcs11 --pkcs11-module /usr/lib/softhsm/libsofthsm2.so --pkcs11-token node --pin-credential pin
  virtengine-node-agent key rotate --abandon";

pub(super) const REGISTER: &str = "\
Examples:
  virtengine-node-agent register --config /etc/virtengine/node-agent/config.yaml
  virtengine-node-agent register --endpoint https://provider.example.com:8443 --wait 30s";

pub(super) const RUN: &str = "\
Examples:
  virtengine-node-agent run --config /etc/virtengine/node-agent/config.yaml
  virtengine-node-agent run --heartbeat-interval 15s --log-level debug

Exit codes: 0 told to stop, 1 failed, 2 wrong configuration, 3 refused by the gateway or not registered, 10 stopped by
order of the provider (the unit does not start it again then).";

pub(super) const STATUS: &str = "\
Examples:
  virtengine-node-agent status
  virtengine-node-agent status --watch
  virtengine-node-agent status --history
  virtengine-node-agent status --output json | jq .status.chain";

pub(super) const SERVICE: &str = "\
Examples:
  virtengine-node-agent service show
  virtengine-node-agent service return --reason repaired";

pub(super) const SERVICE_SHOW: &str = "\
Examples:
  virtengine-node-agent service show
  virtengine-node-agent service show --output json";

pub(super) const SERVICE_RETURN: &str = "\
Examples:
  virtengine-node-agent service return --reason repaired
  virtengine-node-agent service return --force --reason tested-by-hand";

pub(super) const DOCTOR: &str = "\
Examples:
  virtengine-node-agent doctor
  virtengine-node-agent doctor --output json";

pub(super) const OPENAPI: &str = "\
Examples:
  virtengine-node-agent openapi > openapi.json";

pub(super) const INVENTORY: &str = "\
Examples:
  virtengine-node-agent inventory
  virtengine-node-agent inventory --output yaml";

pub(super) const INSTALL: &str = "\
Examples:
  virtengine-node-agent install --dry-run
  virtengine-node-agent install
  virtengine-node-agent install --root /mnt/image --binary /tmp/virtengine-node-agent";

pub(super) const UNINSTALL: &str = "\
Examples:
  virtengine-node-agent uninstall
  virtengine-node-agent uninstall --purge --dry-run";

pub(super) const CONFIG: &str = "\
Examples:
  virtengine-node-agent config check
  virtengine-node-agent config schema > config.schema.json";

pub(super) const CONFIG_CHECK: &str = "\
Examples:
  virtengine-node-agent config check --config /etc/virtengine/node-agent/config.yaml
  virtengine-node-agent config check --output json";

pub(super) const CONFIG_SCHEMA: &str = "\
Examples:
  virtengine-node-agent config schema > config.schema.json";

pub(super) const COMPLETION: &str = "\
Examples:
  virtengine-node-agent completion bash > /etc/bash_completion.d/virtengine-node-agent";

pub(super) const TASKS: &str = "\
Examples:
  virtengine-node-agent tasks
  virtengine-node-agent tasks --config /etc/virtengine/node-agent/config.yaml
  virtengine-node-agent tasks list";

pub(super) const TASKS_LIST: &str = "\
Examples:
  virtengine-node-agent tasks list
  virtengine-node-agent tasks list --output json";

pub(super) const SELFTEST: &str = "\
Examples:
  virtengine-node-agent selftest --sandbox
  virtengine-node-agent selftest --sandbox --output json";

pub(super) const TASKS_PROBE: &str = "\
Examples:
  virtengine-node-agent tasks probe
  virtengine-node-agent tasks probe --output json";

pub(super) const TASKS_SAFETY: &str = "\
Examples:
  virtengine-node-agent tasks safety
  virtengine-node-agent tasks safety --output json
  virtengine-node-agent tasks safety --apply";

pub(super) const TASKS_TRUST: &str = "\
Examples:
  virtengine-node-agent tasks trust";
