//go:build tools

// Package main also pins the version of the server, which bench/peers/nats.py builds.
package main

import _ "github.com/nats-io/nats-server/v2"
