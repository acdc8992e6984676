"""Runs untrusted code; typed verdicts. Knows nothing of the rest of the suite."""
