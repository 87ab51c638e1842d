"""The exception for lowered functions that cannot be read."""


class LoweringError(ValueError):
    """The lowered function is not supported, or a file contains no exported JAX function."""
