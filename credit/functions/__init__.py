"""Credit functions, one a module."""
