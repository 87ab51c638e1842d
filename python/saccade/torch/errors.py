"""What is wrong with an exported program."""


class ExportError(ValueError):
    """An exported program was refused; the message names the node and its operator where there is one."""
