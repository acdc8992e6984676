"""Procedurally generated environments with exact checkers and scripted experts."""
