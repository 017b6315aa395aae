# Thin on purpose: each target calls a script that can be read, and run, alone.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
node_arch := $(if $(filter aarch64,$(shell uname -m)),arm64,x64)
export PATH := $(CURDIR)/node_modules/node-linux-$(node_arch)/bin:$(CURDIR)/node_modules/.bin:$(PATH)
run := node test/run.ts

.PHONY: help prepare build image check test test-unit test-kernel test-vm test-conformance test-runtime test-api test-e2e test-faults fuzz bench demo install clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do printf '  make %-18s %s\n' "$$name" "$$text"; done

prepare: ## install what this machine lacks: Debian packages and npm packages, Node among them
	@conf/build/prepare.sh

build: prepare ## build dist/: the static stub, its pkg form, podnetd, podnetctl
	@conf/build/bundle.sh
	@conf/build/stub.sh
	@conf/build/stub-pkg.sh

image: build ## dist/podnet-image.tar: a container image (docker archive), made without a registry
	@conf/build/image.sh

check: prepare ## lint, types, folder rules (below half a minute)
	@conf/lint/check.sh

test: build ## every tier that runs on one machine: unit, kernel, VM, conformance, runtime
	@$(run) unit kernel vm conformance runtime

test-unit: prepare ## pure code, no root needed
	@$(run) unit $(ARGS)

test-kernel: build ## netlink, plugins and daemon in fresh network namespaces (root)
	@$(run) kernel $(ARGS)

test-vm: build ## the same with drivers that this kernel lacks, in a small virtual machine (root)
	@$(run) vm $(ARGS)

test-conformance: build ## the CNI specification, and the reference plugins side by side (root)
	@$(run) conformance $(ARGS)

test-runtime: build ## real container runtimes: cnitool, containerd (root)
	@$(run) runtime $(ARGS)

test-api: build ## the API server's part of test-e2e (root)
	@$(run) e2e $(ARGS)

test-e2e: image ## a real Kubernetes API server and a whole cluster, built from Debian's source on the first run (root; minutes, once)
	@$(run) e2e cluster $(ARGS)

test-faults: build ## kill -9 at every step, torn files, full disks, load, hostile pods (root; FAULTS=all for all of it)
	@$(run) faults $(ARGS)

fuzz: build ## random input with a seed: FUZZ_SECONDS=10 FUZZ_SEED=n
	@$(run) fuzz $(ARGS)

bench: build ## podnet and the reference plugins on the same work: a table, and dist/bench.json (ARGS=--short)
	@node test/bench/main.ts $(ARGS)

demo: build ## three pods on two networks on this machine, from start to clean end (root)
	@node test/demo.ts

install: build ## install the programs below PREFIX (/usr/local) and the CNI stub into CNI_BIN_DIR (/opt/cni/bin)
	@conf/build/install.sh

clean: ## remove what the build made (downloads are kept in ~/.cache/podnet)
	@rm -rf dist
