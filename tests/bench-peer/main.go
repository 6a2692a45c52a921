// Bench-peer is what a careful Go programmer would write for the gateway's heartbeat path in an afternoon: net/http,
// mutual TLS 1.3, encoding/json, crypto/ed25519, and a log that is synced once for all requests that wait for it. The
// gateway bench drives it with the same heartbeats as the daemon.
package main

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
	"time"
)

type node struct {
	Key []byte `json:"key"`
	Tag []byte `json:"tag"`

	mu       sync.Mutex
	sequence uint32
	nonces   [64]string
	at       int
}

type request struct {
	Heartbeat json.RawMessage `json:"heartbeat"`
	Auth      struct {
		Signature       []byte `json:"signature"`
		Nonce           string `json:"nonce"`
		Timestamp       int64  `json:"timestamp"`
		NodeID          string `json:"node_id"`
		Report          []byte `json:"report"`
		ReportSignature []byte `json:"report_signature"`
	} `json:"auth"`
}

type payload struct {
	NodeID         string    `json:"node_id"`
	ClusterID      string    `json:"cluster_id"`
	SequenceNumber uint64    `json:"sequence_number"`
	Timestamp      time.Time `json:"timestamp"`
	AgentVersion   string    `json:"agent_version"`
	Capacity       struct {
		CPUCoresTotal      int    `json:"cpu_cores_total"`
		CPUCoresAvailable  int    `json:"cpu_cores_available"`
		CPUCoresAllocated  int    `json:"cpu_cores_allocated"`
		MemoryGBTotal      int    `json:"memory_gb_total"`
		MemoryGBAvailable  int    `json:"memory_gb_available"`
		MemoryGBAllocated  int    `json:"memory_gb_allocated"`
		GPUsTotal          int    `json:"gpus_total"`
		GPUsAvailable      int    `json:"gpus_available"`
		GPUsAllocated      int    `json:"gpus_allocated"`
		GPUType            string `json:"gpu_type"`
		StorageGBTotal     int    `json:"storage_gb_total"`
		StorageGBAvailable int    `json:"storage_gb_available"`
		StorageGBAllocated int    `json:"storage_gb_allocated"`
	} `json:"capacity"`
	Health struct {
		Status                      string `json:"status"`
		UptimeSeconds               int64  `json:"uptime_seconds"`
		LoadAverage1m               string `json:"load_average_1m"`
		LoadAverage5m               string `json:"load_average_5m"`
		LoadAverage15m              string `json:"load_average_15m"`
		CPUUtilizationPercent       int    `json:"cpu_utilization_percent"`
		MemoryUtilizationPercent    int    `json:"memory_utilization_percent"`
		GPUUtilizationPercent       int    `json:"gpu_utilization_percent"`
		GPUMemoryUtilizationPercent int    `json:"gpu_memory_utilization_percent"`
		DiskIOUtilizationPercent    int    `json:"disk_io_utilization_percent"`
		NetworkUtilizationPercent   int    `json:"network_utilization_percent"`
		TemperatureCelsius          int    `json:"temperature_celsius"`
		GPUTemperatureCelsius       int    `json:"gpu_temperature_celsius"`
		ErrorCount24h               int    `json:"error_count_24h"`
		WarningCount24h             int    `json:"warning_count_24h"`
		SlurmState                  string `json:"slurm_state"`
	} `json:"health"`
	Latency struct {
		Measurements []struct {
			TargetNodeID      string    `json:"target_node_id"`
			LatencyUs         int64     `json:"latency_us"`
			PacketLossPercent int       `json:"packet_loss_percent"`
			MeasuredAt        time.Time `json:"measured_at"`
		} `json:"measurements"`
		GatewayLatencyUs    int64 `json:"gateway_latency_us"`
		ChainLatencyMs      int64 `json:"chain_latency_ms"`
		AvgClusterLatencyUs int64 `json:"avg_cluster_latency_us"`
	} `json:"latency"`
	Jobs struct {
		RunningCount int      `json:"running_count"`
		PendingCount int      `json:"pending_count"`
		Completed24h int      `json:"completed_24h"`
		Failed24h    int      `json:"failed_24h"`
		ActiveJobIDs []string `json:"active_job_ids"`
	} `json:"jobs"`
	Services struct {
		SlurmdRunning           bool   `json:"slurmd_running"`
		SlurmdVersion           string `json:"slurmd_version"`
		MungeRunning            bool   `json:"munge_running"`
		ContainerRuntime        string `json:"container_runtime"`
		ContainerRuntimeVersion string `json:"container_runtime_version"`
	} `json:"services"`
}

type chainStatus struct {
	Height          uint64 `json:"height"`
	SettledSequence uint32 `json:"settled_sequence"`
	Epoch           uint64 `json:"epoch"`
	NodeState       string `json:"node_state"`
}

type answer struct {
	Response struct {
		Accepted             bool           `json:"accepted"`
		SequenceAck          uint64         `json:"sequence_ack"`
		Timestamp            string         `json:"timestamp"`
		NextHeartbeatSeconds int            `json:"next_heartbeat_seconds"`
		Commands             []string       `json:"commands"`
		ConfigUpdates        map[string]any `json:"config_updates"`
		Errors               []string       `json:"errors"`
		Chain                chainStatus    `json:"chain"`
		Peers                []string       `json:"peers"`
	} `json:"response"`
}

// entry is one report that wants to be on disk.
type entry struct {
	bytes []byte
	done  chan error
}

// write appends what waits and syncs once for all of it.
func write(file *os.File, entries <-chan entry) {
	for first := range entries {
		group := []entry{first}
		buffer := append([]byte(nil), first.bytes...)
	gather:
		for len(group) < 512 {
			select {
			case next := <-entries:
				group = append(group, next)
				buffer = append(buffer, next.bytes...)
			default:
				break gather
			}
		}
		_, err := file.Write(buffer)
		if err == nil {
			err = file.Sync()
		}
		for _, e := range group {
			e.done <- err
		}
	}
}

type server struct {
	nodes   map[string]*node
	entries chan entry
}

func (s *server) heartbeat(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("node")
	if len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != id {
		http.Error(w, "another node's certificate", http.StatusForbidden)
		return
	}
	known := s.nodes[id]
	if known == nil {
		http.Error(w, "unknown node", http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 65536))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	sequence, err := s.admit(known, id, body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var a answer
	a.Response.Accepted = true
	a.Response.SequenceAck = sequence
	a.Response.Timestamp = time.Now().UTC().Format(time.RFC3339Nano)
	a.Response.NextHeartbeatSeconds = 30
	a.Response.Commands = []string{}
	a.Response.ConfigUpdates = map[string]any{"job_ids": "none"}
	a.Response.Errors = []string{}
	a.Response.Chain = chainStatus{Height: 1, SettledSequence: 1, Epoch: 1, NodeState: "active"}
	a.Response.Peers = []string{}
	out, err := json.Marshal(&a)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(out)))
	w.Write(out)
}

func (s *server) admit(known *node, id string, body []byte) (uint64, error) {
	var req request
	if err := json.Unmarshal(body, &req); err != nil {
		return 0, err
	}
	var p payload
	if err := json.Unmarshal(req.Heartbeat, &p); err != nil {
		return 0, err
	}
	auth := &req.Auth
	seconds := p.Timestamp.Unix()
	if age := time.Now().Unix() - seconds; age > 300 || age < -60 || seconds != auth.Timestamp {
		return 0, fmt.Errorf("timestamp outside the window")
	}
	if p.NodeID != id || auth.NodeID != id {
		return 0, fmt.Errorf("another node")
	}
	hash := sha256.Sum256(req.Heartbeat)
	text := fmt.Sprintf("%s|%d|%s|%s", id, seconds, auth.Nonce, hex.EncodeToString(hash[:]))
	if !ed25519.Verify(known.Key, []byte(text), auth.Signature) {
		return 0, fmt.Errorf("signature")
	}
	if len(auth.Report) != 70 {
		return 0, fmt.Errorf("report")
	}
	message := append(append(make([]byte, 0, 86), known.Tag...), auth.Report...)
	if !ed25519.Verify(known.Key, message, auth.ReportSignature) {
		return 0, fmt.Errorf("report signature")
	}
	sequence := binary.BigEndian.Uint32(auth.Report[4:8])
	if uint64(sequence) != p.SequenceNumber || string(auth.Report[38:70]) != string(hash[:]) {
		return 0, fmt.Errorf("report mismatch")
	}
	known.mu.Lock()
	if sequence <= known.sequence {
		known.mu.Unlock()
		return 0, fmt.Errorf("stale sequence")
	}
	for _, nonce := range known.nonces {
		if nonce == auth.Nonce {
			known.mu.Unlock()
			return 0, fmt.Errorf("nonce")
		}
	}
	known.nonces[known.at%len(known.nonces)] = auth.Nonce
	known.at++
	known.sequence = sequence
	known.mu.Unlock()
	record := append(append(append(make([]byte, 0, 256), id...), auth.Report...), auth.ReportSignature...)
	e := entry{bytes: record, done: make(chan error, 1)}
	s.entries <- e
	return uint64(sequence), <-e.done
}

func main() {
	cert := flag.String("cert", "", "server certificate")
	key := flag.String("key", "", "server key")
	ca := flag.String("ca", "", "CA of the nodes")
	nodes := flag.String("nodes", "", "JSON: id to key and tag")
	store := flag.String("store", "", "file that reports are appended to")
	listen := flag.String("listen", "", "address")
	flag.Parse()
	s := &server{nodes: map[string]*node{}, entries: make(chan entry, 4096)}
	text, err := os.ReadFile(*nodes)
	check(err)
	check(json.Unmarshal(text, &s.nodes))
	file, err := os.OpenFile(*store, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(err)
	go write(file, s.entries)
	pair, err := tls.LoadX509KeyPair(*cert, *key)
	check(err)
	pem, err := os.ReadFile(*ca)
	check(err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		log.Fatal("no CA")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/hpc/nodes/{node}/heartbeat", s.heartbeat)
	h := &http.Server{
		Addr:              *listen,
		Handler:           mux,
		ReadHeaderTimeout: 60 * time.Second,
		IdleTimeout:       time.Hour,
		ErrorLog:          log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{pair},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    pool,
			MinVersion:   tls.VersionTLS13,
			NextProtos:   []string{"http/1.1"},
		},
	}
	log.Fatal(h.ListenAndServeTLS("", ""))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
