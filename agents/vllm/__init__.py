"""The vLLM engine: continuous batching and prefix caching, started by the run or reached as a server.

`policy` routes requests to replicas and guards them; `local` is a replica that this process starts, `server` one that
somebody else did; `weights` hands them new weights; `parity` compares their log-probabilities with the trainer's;
`options` says what may be set, and what may not. Nothing here imports vLLM before an engine starts.
"""
