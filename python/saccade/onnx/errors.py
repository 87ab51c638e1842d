"""The exception for invalid models."""


class ModelError(ValueError):
    """A model was rejected; the message contains the file, and the node and its operator if there is one."""
