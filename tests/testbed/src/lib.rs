//! A real Kubernetes on one machine, for tests, benches and the demo.
