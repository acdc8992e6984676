"""Environments: tools, tasks, parsing of calls, rendering, the recorder wrapper and the catalogue."""
