# bash completion of the node agent: the program writes it itself, so it always knows its own options.
# shellcheck shell=bash disable=SC1090
source <(virtengine-node-agent completion bash)
