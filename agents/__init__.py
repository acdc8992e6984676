"""Policies and rollouts."""
