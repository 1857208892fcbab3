package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// openAppends is how many appends fill keeps open.
	openAppends = 4000
	// pulledMessages is how many messages the consumer requests at once.
	pulledMessages = 5000
	longestRead    = 2 * time.Minute
)

// connect creates the stream, if it does not exist, and connects to its leader.
func connect(ctx context.Context, s settings) (*nats.Conn, error) {
	leader, err := createStream(ctx, s)
	if err != nil {
		return nil, err
	}
	return nats.Connect(leader)
}

// fill creates the stream and appends s.records records to it as quickly as one connection can.
func fill(ctx context.Context, s settings) (result, error) {
	connection, err := connect(ctx, s)
	if err != nil {
		return result{}, err
	}
	defer connection.Close()
	failures := make(chan error, s.records)
	js, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(openAppends),
		jetstream.WithPublishAsyncErrHandler(
			func(_ jetstream.JetStream, _ *nats.Msg, err error) { failures <- err }))
	if err != nil {
		return result{}, err
	}
	begun, data := time.Now(), randomData(s.size)
	for range s.records {
		// By default a publish fails if no acknowledgement comes for 200 ms while the limit is reached.
		_, err := js.PublishAsync(s.stream+".0", data, jetstream.WithStallWait(time.Minute))
		if err != nil {
			return result{}, err
		}
	}
	<-js.PublishAsyncComplete()
	select {
	case err := <-failures:
		return result{}, err
	default:
		return result{Seconds: time.Since(begun).Seconds(), Records: s.records}, nil
	}
}

// read reads s.records records from the start of the stream by an ordered consumer.
func read(ctx context.Context, s settings) (result, error) {
	connection, err := connect(ctx, s)
	if err != nil {
		return result{}, err
	}
	defer connection.Close()
	js, err := jetstream.New(connection)
	if err != nil {
		return result{}, err
	}
	cpu, begun := cpuSeconds(), time.Now()
	consumer, err := js.OrderedConsumer(ctx, s.stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return result{}, err
	}
	count, all := 0, make(chan struct{})
	consuming, err := consumer.Consume(func(jetstream.Msg) {
		if count++; count == s.records {
			close(all)
		}
	}, jetstream.PullMaxMessages(pulledMessages))
	if err != nil {
		return result{}, err
	}
	defer consuming.Stop()
	select {
	case <-all:
		seconds := time.Since(begun).Seconds()
		return result{Seconds: seconds, Records: s.records, CPUSeconds: cpuSeconds() - cpu}, nil
	case <-time.After(longestRead):
		return result{}, errors.New("the records did not arrive within two minutes")
	}
}
