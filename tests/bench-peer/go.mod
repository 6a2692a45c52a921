// The gateway bench's peer: the standard library alone.
module virtengine.dev/bench-peer

go 1.25.9
