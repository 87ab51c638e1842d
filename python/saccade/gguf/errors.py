"""The exception for files that are refused."""


class FileError(ValueError):
    """A GGUF file was rejected: the message has the file, the byte offset or the tensor, and the reason."""
