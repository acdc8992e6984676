"""Reads stored trajectories and shows them."""
