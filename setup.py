"""Computes the package list, so that no sub-package is ever forgotten; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

ROOMS = ["envs", "agents", "credit", "trainer", "sandboxes", "replay"]
rooms = find_packages(include=[*ROOMS, *(f"{room}.*" for room in ROOMS)])
commands = find_packages(where="front")

setup(packages=["accredit", *(f"accredit.{name}" for name in [*rooms, *commands])])
