"""Language models of GGUF files, the format of llama.cpp.

`load` compiles a model and binds its weights, which stay in the mapped file; `write` returns the program. Nothing is
computed here: the frontend writes a program, and its weights are the bytes of the file (docs/guides/gguf.md). Texts are
tokens: a tokenizer's library makes them. Requires NumPy, and ml_dtypes for weights or caches in bfloat16.
"""

from saccade.gguf.container import Container
from saccade.gguf.decoder import Program, write
from saccade.gguf.errors import FileError
from saccade.gguf.model import Model, Session, load
from saccade.gguf.settings import FAMILIES, Settings

__all__ = ["FAMILIES", "Container", "FileError", "Model", "Program", "Session", "Settings", "load", "write"]
