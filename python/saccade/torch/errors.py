"""The exception for invalid exported programs."""


class ExportError(ValueError):
    """An exported program was rejected; the message contains the node and its operator if there is one."""
