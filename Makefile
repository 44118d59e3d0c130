# The verbs of this project. `make` lists them. Each long step writes to target/logs and prints one line.
#
# CARGO_TARGET_DIR is respected. Built binaries of the testbed are kept in $ETCD_OPERATOR_CACHE
# (~/.cache/etcd-operator), named by their versions.

.DEFAULT_GOAL := help
.PHONY: help demo demo-down test test-fast test-slow lint crds chaos image bench bench-bringup bench-life

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r verb what; do \
	  printf '  make %-13s %s\n' "$$verb" "$$what"; done

demo: ## A real Kubernetes grows a three-member etcd before your eyes (root, Debian, Rust, Go)
	@.ci/demo up

demo-down: ## Remove every trace of the demo
	@.ci/demo down

test: ## All that CI runs
	@.ci/test all

test-fast: ## What needs no testbed: lints, unit tests, simulation in small, drift
	@.ci/test fast

test-slow: ## The tests that wait for minutes, and the simulation at ten times its size
	@.ci/test slow

chaos: ## Random faults on three clusters for MINUTES minutes (10); SEED=n repeats the choices of a run
	@MINUTES="$(MINUTES)" SEED="$(SEED)" .ci/chaos

lint: ## Format, clippy and, where installed, cargo-deny
	@.ci/test lint

crds: ## Write deploy/crds and deploy/examples from the Rust types
	cargo run --quiet --locked --bin crdgen -- deploy/crds

image: ## Build the operator's image as an archive, without a container engine
	@.ci/image

bench: ## Measure the decisions (criterion; results in target/criterion)
	cargo bench --locked --bench decisions

bench-bringup: ## Measure bring-ups on a testbed of its own: time, requests, CPU, memory (root, 20 min)
	@.ci/bench bringup

bench-life: ## Measure growing, shrinking and ten minutes at rest, likewise (root, 30 min)
	@.ci/bench life
