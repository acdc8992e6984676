"""The version of the package; read by the build, by run directories and by `accredit --version`."""

__version__ = "0.1.0"
