"""Language models of GGUF files: `load` compiles one, a `Session` computes the logits of a text and continues it."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from saccade import _log
from saccade.artifact import Artifact
from saccade.binding import PREPACK, BoundFunction, bind_to
from saccade.gguf import decoder, settings
from saccade.gguf.container import Container
from saccade.gguf.sampling import Sampler
from saccade.module import compile_model

if TYPE_CHECKING:
    import numpy

CONTEXT = 4096
"""The longest text of a session by default, if the model was trained for as many tokens."""
CHUNK = 512
"""The most tokens of a prompt in one call of the program."""


class Model:
    """A compiled language model, whose weights are bound. Threads may share it, each with a session of its own."""

    def __init__(self, path: str, settings: settings.Settings, function: BoundFunction):
        """Called by `load`."""
        self.path, self.settings = path, settings
        self.function = function
        """The program: docs/guides/gguf.md describes its arguments."""

    def session(self, context: int | None = None) -> Session:
        """A new text, which may have `context` tokens: by default 4096, or as many as the model was trained for if
        these are fewer. Raises ValueError for a context that is longer than the model was trained for."""
        longest = self.settings.context
        if context is None:
            context = min(longest, CONTEXT)
        elif not 1 <= _integer("context", context) <= longest:
            raise ValueError(f"context is {context}, expected 1 to {longest}, for which {self.path} was trained")
        return Session(self, context)

    def generate(self, tokens: Iterable[int], count: int, **options: Any) -> Iterator[int]:
        """`Session.generate` in a new session."""
        return self.session().generate(tokens, count, **options)

    def __repr__(self) -> str:
        return f"<saccade.gguf.Model {self.settings.name!r} of {self.path!r}>"


class Session:
    """One text: its tokens are in the caches of keys and values, which the session owns. Not thread-safe."""

    def __init__(self, model: Model, context: int):
        """Called by `Model.session`."""
        import numpy

        self.model, self.context = model, context
        self._cached = 0
        self._pending: tuple[int, ...] = ()
        sizes = model.settings
        updated = [value for value in model.function.inputs if value.updated_by is not None]
        shape = 1, sizes.kv_heads, context, sizes.head_dim
        self._caches = [numpy.zeros(shape, _dtype(value.dtype)) for value in updated]

    @property
    def length(self) -> int:
        """The tokens of the text."""
        return self._cached + len(self._pending)

    def prefill(self, tokens: Iterable[int]) -> numpy.ndarray:
        """Appends tokens to the text and returns the logits [vocabulary] of the next one.

        Raises:
            ValueError: no token, one that is not in the vocabulary, or more than the context has place for. The text is
                as before.
            TypeError: a token that is no integer.
        """
        ids = self._appended(tokens)
        for start in range(0, len(ids) - CHUNK, CHUNK):
            self._call(ids[start : start + CHUNK], 0)
        last = (len(ids) - 1) // CHUNK * CHUNK
        return self._call(ids[last:], 1)[0]

    def decode(self, token: int) -> numpy.ndarray:
        """As `prefill`, for one token."""
        return self.prefill((token,))

    def logits(self, tokens: Iterable[int]) -> numpy.ndarray:
        """As `prefill`, but returns the logits [tokens, vocabulary] of what follows each of the tokens."""
        import numpy

        before = len(self._pending)
        ids = self._appended(tokens)
        parts = [self._call(ids[start : start + CHUNK], CHUNK) for start in range(0, len(ids), CHUNK)]
        return numpy.concatenate(parts)[before:]

    def generate(self, tokens: Iterable[int], count: int, *, temperature: float = 0.0, top_k: int | None = None,
                 top_p: float = 1.0, seed: int | None = None, stop: Sequence[int] | None = None) -> Iterator[int]:
        """Appends a prompt and continues the text, token by token.

        Args:
            tokens: the prompt.
            count: the most tokens to generate. Generation ends earlier where the context does.
            temperature: of the distribution that tokens are drawn from; 0 takes the likeliest token.
            top_k: draws from so many of the likeliest tokens.
            top_p: draws from the likeliest tokens that together have this probability.
            seed: of the random numbers; None takes others each time.
            stop: tokens that end the text, which are not returned. By default the token that the file names.

        All tokens that it yields are part of the text, but for one that the context has no place for. A token of `stop`
        is not: a call that continues the text may begin with it.

        Raises:
            ValueError, TypeError: see `prefill`; and for an option out of range.
        """
        if _integer("count", count) < 0:
            raise ValueError(f"count is {count}, expected 0 or more")
        sampler = Sampler(temperature, top_k, top_p, seed)
        end = self.model.settings.end_token
        if stop is None:
            stop = () if end is None else (end,)
        if isinstance(stop, str) or not isinstance(stop, Iterable):
            raise TypeError(f"stop is {stop!r:.80}, expected a sequence of tokens")
        stops = frozenset(_integer("a token of stop", token) for token in stop)
        return self._generated(self._checked(tokens).tolist(), count, sampler, stops)

    def rewind(self, length: int) -> None:
        """Forgets all but the first `length` tokens. Raises ValueError if the text has fewer."""
        if not 0 <= _integer("length", length) <= self.length:
            raise ValueError(f"length is {length}, expected 0 to {self.length}, the tokens of the text")
        if length < self.length:
            self._cached, self._pending = min(length, self._cached), ()

    def _generated(self, prompt: list[int], count: int, sampler: Sampler, stops: frozenset[int]) -> Iterator[int]:
        if not count:
            return
        logits = self.prefill(prompt)
        for n in range(count):
            token = sampler.draw(logits)
            if token in stops:
                return
            if self.length == self.context:
                yield token
                return
            # Part of the text before the caller has it, who may not ask for another one.
            self._pending = (token,)
            yield token
            if n + 1 < count:
                logits = self._call(self._appended(None), 1)[0]

    def _appended(self, tokens: Iterable[int] | None) -> numpy.ndarray:
        """The tokens of the text that the caches do not have yet, and `tokens`."""
        import numpy

        pending = numpy.array(self._pending, numpy.int32)
        ids = pending if tokens is None else numpy.concatenate([pending, self._checked(tokens)])
        self._pending = ()
        return ids

    def _call(self, ids: numpy.ndarray, rows: int) -> numpy.ndarray:
        """Appends tokens, and returns the logits after the last `rows` of them."""
        import numpy

        n = len(ids)
        asked = numpy.arange(max(n - rows, 0), n, dtype=numpy.int32)[None]
        at, count = numpy.array([self._cached], numpy.int32), numpy.array([n], numpy.int32)
        logits = self.model.function(ids[None], at, count, asked, *self._caches)[-1]
        self._cached += n
        return logits[0]

    def _checked(self, tokens: Iterable[int]) -> numpy.ndarray:
        import numpy

        vocabulary = self.model.settings.vocabulary
        ids = [_integer("a token", token) for token in tokens]
        if not ids:
            raise ValueError("there are no tokens, expected at least 1")
        for place, token in enumerate(ids):
            if not 0 <= token < vocabulary:
                raise ValueError(f"token {place} is {token}, expected 0 to {vocabulary - 1}: the vocabulary of "
                                 f"{self.model.path}")
        if self.length + len(ids) > self.context:
            longest = self.model.settings.context
            raise ValueError(f"the context is full: found {self.length} tokens and {len(ids)} new "
                             f"one{'s' * (len(ids) > 1)}, expected at most {self.context}; the model was trained for "
                             f"{longest}" + (f", which Model.session(context={longest}) allows"
                                             if self.context < longest else ""))
        return numpy.array(ids, numpy.int32)


def load(path: str | os.PathLike[str], *, library: str | os.PathLike[str] | None = None, cache: str = "f32",
         activations: str = "f32", prepack: bool = False, **options: Any) -> Model:
    """Loads a language model: compiles it, and binds the weights, which stay in the file. The file is mapped: processes
    share its memory.

    Args:
        path: a GGUF file of an architecture in `FAMILIES`.
        library: what `python -m saccade.gguf PATH -o LIBRARY` has compiled. The compiler is then not needed.
        cache: the element type of the caches of keys and values, "f32", "f16" or "bf16". With a library it is that of
            the library.
        activations: the type of the activations in matmuls, "f32", "bf16" or "int8". With "bf16", processors with
            instructions for it (`v4-bf16`, `v4-amx`) read prompts faster; activations that are multiplied with blocks
            or with weights in bfloat16 have 8 bits of mantissa. With "int8", x86 processors (from `v3` on) generate
            faster; activations that are multiplied with blocks are rounded to 8 bits, 32 with one scale. Sums are f32.
        prepack: packs weights of 32 and 16 bits for faster matmuls, in memory of the process.
        options: those of `saccade.compile`.

    Raises:
        OSError: a file cannot be read.
        FileError: the file is damaged, or has an architecture, an element type, a key or a tensor that is not
            supported.
        CompileError: the compiler rejected the program.
        ValueError: an invalid option, or a library of another model.

    Example:
        >>> model = saccade.gguf.load("model.gguf")
        >>> list(model.generate([1, 15043, 3186], 20))
    """
    container = Container(path)
    if library is not None:
        if options or prepack or (cache, activations) != ("f32", "f32"):
            raise TypeError("options are those of the compiler, which a library was compiled with: expected none of "
                            f"them with library={os.fspath(library)!r}")
        function = Artifact(library, container.path)["main"]
        assert isinstance(function, BoundFunction)
        return Model(container.path, settings.read(container), function)
    program = decoder.write(container, cache, activations)
    module = compile_model(program.text, prepack, **options)
    with _log.step(f"binding the {len(program.weights)} tensors of {container.path}"):
        arrays = {argument: container.array(container.tensors[name]) for argument, name in program.weights.items()}
        packs = module.functions.get(f"main{PREPACK}")
        return Model(container.path, program.settings, bind_to(module["main"], packs, arrays, program.weights))


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r:.80}, expected an integer") from None


def _dtype(name: str) -> Any:
    if name != "bfloat16":
        return name
    import ml_dtypes

    return ml_dtypes.bfloat16
