"""The embedded backend: a fork-server in namespaces, without a daemon."""
