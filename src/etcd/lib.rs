//! The etcd adapter: the only user of etcd-client.
