"""The embedded backend: a fork-server in its own namespaces, with nothing to install and no daemon.

The *client* lives in the trainer. It executes a *slot* (a fresh interpreter with an empty environment), which walls
itself off and then forks one process per run. Standard library and kernel calls only.
"""
