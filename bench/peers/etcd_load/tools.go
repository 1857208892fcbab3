//go:build tools

// Package main also pins the version of the server, which bench/peers/etcd.py builds.
package main

import _ "go.etcd.io/etcd/server/v3"
