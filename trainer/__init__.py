"""The training loop, its loss, its checkpoints and its metrics."""
