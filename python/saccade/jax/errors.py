"""Why a lowered function is not read."""


class LoweringError(ValueError):
    """What JAX wrote is no program that can be read, or a file is none of JAX's."""
