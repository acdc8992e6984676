"""Accredit: reinforcement learning of tool-using language-model agents, with credit that is right by construction."""
