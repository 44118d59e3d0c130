//! The wire types of etcd-operator.cozystack.io/v1alpha2.
