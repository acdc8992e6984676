"""Sandboxes in containers of a Docker engine, with the host's kernel or with gVisor's. Needs the extra `docker`."""
