"""The version of the package, for what may not import all of it."""

__version__ = "0.2.0"
