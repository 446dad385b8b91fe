"""The version, in a module that imports nothing: the root of the package names all others in its type hints."""

__version__ = "0.1.0"
