// Load generator for NATS JetStream: appends records to a replicated stream, or reads them. Prints a
// line of JSON.
//
// bench/peers/nats.py starts it. A record counts when JetStream has acknowledged it. The connections
// go to the leader of the stream, so that no record takes a way through another server.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// wrongLastSequence is the code of an error of JetStream.
const wrongLastSequence = 10164

type settings struct {
	mode                           string
	urls                           []string
	stream                         string
	clients, window, size, records int
	locks                          bool
}

// result has the names of the Python classes Measured and ReadRun; the latter has no latencies.
type result struct {
	Seconds    float64 `json:"seconds"`
	Records    int     `json:"records"`
	P50        float64 `json:"p50_ms,omitempty"`
	P99        float64 `json:"p99_ms,omitempty"`
	CPUSeconds float64 `json:"client_seconds"`
}

func main() {
	var s settings
	flag.StringVar(&s.mode, "mode", "append", "append; fill for a quick append; read")
	urls := flag.String("urls", "", "the servers, in the order of their names n0, n1, …")
	flag.StringVar(&s.stream, "stream", "", "the stream to create and to append to")
	flag.IntVar(&s.clients, "clients", 1, "the number of connections")
	flag.IntVar(&s.window, "window", 1, "the appends that a connection keeps open")
	flag.IntVar(&s.size, "size", 512, "the bytes of a record")
	flag.IntVar(&s.records, "records", 1000, "the records of all connections together")
	flag.BoolVar(&s.locks, "locks", false, "append only if the last record of the writer is known")
	flag.Parse()
	s.urls = strings.Split(*urls, ",")
	run := map[string]func(context.Context, settings) (result, error){
		"append": appendRecords, "fill": fill, "read": read,
	}[s.mode]
	if run == nil {
		log.Fatalf("nats_load: unknown mode %q", s.mode)
	}
	found, err := run(context.Background(), s)
	if err != nil {
		log.Fatalf("nats_load: %v", err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}

// appendRecords creates the stream, appends some records to warm up, and measures s.records records.
// bench/peers/nats.py relies on the size of the warm-up: a tenth of s.records, and one per writer.
func appendRecords(ctx context.Context, s settings) (result, error) {
	leader, err := createStream(ctx, s)
	if err != nil {
		return result{}, err
	}
	writers := make([]*writer, 0, s.clients*s.window)
	for range s.clients {
		connection, err := nats.Connect(leader)
		if err != nil {
			return result{}, err
		}
		defer connection.Close()
		js, err := jetstream.New(connection)
		if err != nil {
			return result{}, err
		}
		for range s.window {
			subject := fmt.Sprintf("%s.%d", s.stream, len(writers))
			writers = append(writers, &writer{js: js, subject: subject, locks: s.locks})
		}
	}
	data := randomData(s.size)
	if err := appendAll(ctx, writers, data, s.records/10+len(writers)); err != nil {
		return result{}, err
	}
	for _, w := range writers {
		w.latencies = w.latencies[:0]
	}
	cpu, begun := cpuSeconds(), time.Now()
	if err := appendAll(ctx, writers, data, s.records); err != nil {
		return result{}, err
	}
	found := result{Seconds: time.Since(begun).Seconds(), CPUSeconds: cpuSeconds() - cpu}
	var latencies []time.Duration
	for _, w := range writers {
		latencies = append(latencies, w.latencies...)
	}
	slices.Sort(latencies)
	found.Records = len(latencies)
	found.P50 = milliseconds(latencies[len(latencies)/2])
	found.P99 = milliseconds(latencies[min(len(latencies)-1, len(latencies)*99/100)])
	return found, nil
}

// createStream returns the address of the leader of the new stream, which has three replicas.
func createStream(ctx context.Context, s settings) (string, error) {
	connection, err := nats.Connect(strings.Join(s.urls, ","))
	if err != nil {
		return "", err
	}
	defer connection.Close()
	js, err := jetstream.New(connection)
	if err != nil {
		return "", err
	}
	config := jetstream.StreamConfig{
		Name: s.stream, Subjects: []string{s.stream + ".>"},
		Storage: jetstream.FileStorage, Replicas: len(s.urls),
	}
	deadline := time.Now().Add(time.Minute)
	for {
		// Just after the start, the servers have not elected a leader that could create streams.
		stream, err := js.CreateOrUpdateStream(ctx, config)
		if err == nil {
			info := stream.CachedInfo()
			if info.Cluster != nil && info.Cluster.Leader != "" {
				var number int
				if _, err := fmt.Sscanf(info.Cluster.Leader, "n%d", &number); err != nil {
					return "", err
				}
				return s.urls[number], nil
			}
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("no stream with a leader within a minute: %w", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// A writer has one append open at a time, and a subject of its own.
type writer struct {
	js        jetstream.JetStream
	subject   string
	locks     bool
	last      uint64
	latencies []time.Duration
}

// appendAll lets the writers append count records together.
func appendAll(ctx context.Context, writers []*writer, data []byte, count int) error {
	var left atomic.Int64
	left.Store(int64(count))
	failures := make(chan error, len(writers))
	var all sync.WaitGroup
	for _, w := range writers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := w.append(ctx, data); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failures)
	return <-failures
}

// append appends one record. With locks, it is refused if another record of the subject was appended
// since the writer's last one: the optimistic check of JetStream.
func (w *writer) append(ctx context.Context, data []byte) error {
	var options []jetstream.PublishOpt
	if w.locks {
		options = append(options, jetstream.WithExpectLastSequencePerSubject(w.last))
	}
	begun := time.Now()
	acknowledged, err := w.js.Publish(ctx, w.subject, data, options...)
	for isWrongSequence(err) {
		// The leader has not applied the writer's last record yet, which it has acknowledged.
		acknowledged, err = w.js.Publish(ctx, w.subject, data, options...)
	}
	if err != nil {
		return err
	}
	w.latencies = append(w.latencies, time.Since(begun))
	w.last = acknowledged.Sequence
	return nil
}

// isWrongSequence tells whether JetStream has refused an append for its expected last sequence.
func isWrongSequence(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.ErrorCode == wrongLastSequence
}

// randomData returns the data of every record.
func randomData(size int) []byte {
	data := make([]byte, size)
	rand.New(rand.NewSource(7)).Read(data)
	return data
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// cpuSeconds returns the CPU time of this process.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}
