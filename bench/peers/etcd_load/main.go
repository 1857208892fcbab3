// Load generator for etcd: writes records to a cluster, and prints a line of JSON for each run.
//
// bench/peers/etcd.py starts it and sends its commands by standard input, one in each line:
//
//	open PREFIX CLIENTS WINDOW SIZE LOCKS  connects the clients to the leader; LOCKS is true or false
//	append RECORDS SECONDS                 writes records until there are so many, or for so long
//	close                                  closes the connections
//
// Each command is answered by one line, an object of JSON. A record counts when etcd has answered
// its put.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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

	clientv3 "go.etcd.io/etcd/client/v3"
)

// result has the names of the Python class Measured.
type result struct {
	Seconds    float64 `json:"seconds"`
	Records    int     `json:"records"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	CPUSeconds float64 `json:"client_seconds"`
}

func main() {
	endpoints := strings.Split(os.Args[1], ",")
	answers := json.NewEncoder(os.Stdout)
	var opened *session
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		answer, err := any(struct{}{}), error(nil)
		switch line := commands.Text(); {
		case strings.HasPrefix(line, "open "):
			opened, err = open(context.Background(), endpoints, line)
		case strings.HasPrefix(line, "append "):
			answer, err = opened.append(context.Background(), line)
		case line == "close":
			err = opened.close()
		default:
			err = fmt.Errorf("unknown command %q", line)
		}
		if err == nil {
			err = answers.Encode(answer)
		}
		if err != nil {
			log.Fatalf("etcd_load: %v", err)
		}
	}
}

// A session is a number of clients, each with a connection of its own to the leader.
type session struct {
	clients []*clientv3.Client
	writers []*writer
	data    string
}

func open(ctx context.Context, endpoints []string, line string) (*session, error) {
	var prefix string
	var clients, window, size int
	var locks bool
	_, err := fmt.Sscanf(line, "open %s %d %d %d %t", &prefix, &clients, &window, &size, &locks)
	if err != nil {
		return nil, err
	}
	leader, err := findLeader(ctx, endpoints)
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	rand.New(rand.NewSource(7)).Read(data)
	s := &session{data: string(data)}
	for range clients {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{leader}})
		if err != nil {
			return nil, err
		}
		s.clients = append(s.clients, client)
		for range window {
			name := fmt.Sprintf("%s/%d", prefix, len(s.writers))
			s.writers = append(s.writers, &writer{client: client, name: name, locks: locks})
		}
	}
	return s, nil
}

// findLeader returns the endpoint of the member that leads.
func findLeader(ctx context.Context, endpoints []string) (string, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		return "", err
	}
	defer client.Close()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		for _, endpoint := range endpoints {
			limited, cancel := context.WithTimeout(ctx, time.Second)
			status, err := client.Status(limited, endpoint)
			cancel()
			if err == nil && status.Leader != 0 && status.Leader == status.Header.MemberId {
				return endpoint, nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return "", errors.New("no leader within a minute")
}

// append lets the writers write together, and returns the figures of this command alone.
func (s *session) append(ctx context.Context, line string) (result, error) {
	var records int
	var seconds float64
	if _, err := fmt.Sscanf(line, "append %d %g", &records, &seconds); err != nil {
		return result{}, err
	}
	var left atomic.Int64
	left.Store(int64(records))
	failures := make(chan error, len(s.writers))
	var all sync.WaitGroup
	cpu, begun := cpuSeconds(), time.Now()
	end := begun.Add(time.Duration(seconds * float64(time.Second)))
	for _, w := range s.writers {
		w.latencies = w.latencies[:0]
		all.Go(func() {
			for time.Now().Before(end) && left.Add(-1) >= 0 {
				if err := w.append(ctx, s.data); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	all.Wait()
	found := result{Seconds: time.Since(begun).Seconds(), CPUSeconds: cpuSeconds() - cpu}
	close(failures)
	if err := <-failures; err != nil {
		return result{}, err
	}
	var latencies []time.Duration
	for _, w := range s.writers {
		latencies = append(latencies, w.latencies...)
	}
	if len(latencies) == 0 {
		return result{}, errors.New("no record was written")
	}
	slices.Sort(latencies)
	found.Records = len(latencies)
	found.P50 = milliseconds(latencies[len(latencies)/2])
	found.P99 = milliseconds(latencies[len(latencies)*99/100])
	return found, nil
}

func (s *session) close() error {
	for _, client := range s.clients {
		if err := client.Close(); err != nil {
			return err
		}
	}
	return nil
}

// A writer has one put open at a time. It writes each record to a key of its own.
type writer struct {
	client    *clientv3.Client
	name      string
	locks     bool
	count     int
	revision  int64 // the revision of the writer's lock, 0 while there is none
	latencies []time.Duration
}

// append writes one record. With locks, the record is written in a transaction that is refused if
// another one has changed the writer's lock since the writer's last record.
func (w *writer) append(ctx context.Context, data string) error {
	w.count++
	record := clientv3.OpPut(fmt.Sprintf("%s/%d", w.name, w.count), data)
	begun := time.Now()
	if !w.locks {
		if _, err := w.client.Do(ctx, record); err != nil {
			return err
		}
	} else {
		lock := w.name + "/lock"
		answer, err := w.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(lock), "=", w.revision)).
			Then(clientv3.OpPut(lock, ""), record).
			Commit()
		if err != nil {
			return err
		}
		if !answer.Succeeded {
			return fmt.Errorf("the lock %s was changed by another writer", lock)
		}
		w.revision = answer.Header.Revision
	}
	w.latencies = append(w.latencies, time.Since(begun))
	return nil
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
