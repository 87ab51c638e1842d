"""What is wrong with a model."""


class ModelError(ValueError):
    """A model was refused; the message names the file, and the node and its operator where there is one."""
