"""Bodies of requests and answers, in the form of OpenAI's API of completions."""

import codecs
import json
import random
import time
import uuid

MODEL = "opticks"
MAX_TOKENS = 16  # by default
MAX_STOPS, MAX_STOP_BYTES = 4, 64

NEUTRAL = {"n": 1, "best_of": 1, "echo": False, "suffix": None, "logprobs": None, "top_p": 1, "presence_penalty": 0,
           "frequency_penalty": 0, "logit_bias": None}  # fmt: skip
"""Parameters that are not supported, and the value that changes nothing."""


class Refused(Exception):
    """A request that is refused with a status of HTTP and a sentence."""

    def __init__(self, status, message, parameter=None, code=None):
        super().__init__(message)
        self.status, self.parameter, self.code = status, parameter, code

    def body(self):
        kind = "invalid_request_error" if self.status < 500 and self.status != 429 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.parameter, "code": self.code}}


def parse(body, context):
    """The arguments of a scheduler's Request of a body, whether the answer is streamed, and whether with usage."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"The body is not JSON: {error}.") from None
    if not isinstance(given, dict):
        raise Refused(400, f"The body is {_kind(given)}, expected an object.")
    fields = {name: value for name, value in given.items() if value is not None}
    if "model" not in fields:
        raise Refused(400, f"model is missing, expected {MODEL!r}.", "model")
    if fields.pop("model") != MODEL:
        raise Refused(404, f"The model does not exist, expected {MODEL!r}.", "model", "model_not_found")
    fields.pop("user", None)
    for name, value in NEUTRAL.items():
        if fields.pop(name, value) != value:
            raise Refused(400, f"{name} is not supported, expected {json.dumps(value)}, or none.", name)
    prompt = _tokens(fields.pop("prompt", None))
    max_tokens = _integer(fields, "max_tokens", MAX_TOKENS, 1, context)
    if len(prompt) + max_tokens > context:
        raise Refused(400, f"The prompt has {len(prompt)} tokens and max_tokens is {max_tokens}, expected at most "
                      f"{context} in all.", "prompt", "context_length_exceeded")  # fmt: skip
    made = {"prompt": prompt, "max_tokens": max_tokens, "temperature": _number(fields, "temperature", 0, 0, 2),
            "seed": _integer(fields, "seed", random.getrandbits(63), -(2**63), 2**63 - 1), "stop": _stops(fields)}
    is_streamed = _flag(fields, "stream")
    options = fields.pop("stream_options", {})
    if not isinstance(options, dict):
        raise Refused(400, f"stream_options is {_kind(options)}, expected an object.", "stream_options")
    if options and not is_streamed:
        raise Refused(400, "stream_options is given, expected stream to be true.", "stream_options")
    has_usage = _flag(options := dict(options), "include_usage")
    for name in [*options, *fields]:
        raise Refused(400, f"{name[:80]!r} is not a parameter.", name[:80])
    return made, is_streamed, has_usage


def _kind(value):
    return {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(
        type(value), "a number")  # fmt: skip


def _tokens(prompt):
    if isinstance(prompt, str):
        try:
            tokens = prompt.encode()
        except UnicodeEncodeError:
            raise Refused(400, "prompt has half of a surrogate pair, expected text.", "prompt") from None
    elif isinstance(prompt, list) and all(type(each) is int and 0 <= each < 256 for each in prompt):
        tokens = bytes(prompt)
    else:
        raise Refused(400, "prompt is not a string and not an array of tokens, which are numbers from 0 to 255.",
                      "prompt")  # fmt: skip
    if not tokens:
        raise Refused(400, "prompt is empty, expected at least one token.", "prompt")
    return tokens


def _integer(fields, name, default, least, most):
    value = fields.pop(name, default)
    if type(value) is not int or not least <= value <= most:
        raise Refused(400, f"{name} is not an integer from {least} to {most}.", name)
    return value


def _number(fields, name, default, least, most):
    value = fields.pop(name, default)
    if type(value) not in (int, float) or not least <= value <= most:
        raise Refused(400, f"{name} is not a number from {least} to {most}.", name)
    return float(value)


def _flag(fields, name):
    value = fields.pop(name, False)
    if value is None:
        return False
    if type(value) is not bool:
        raise Refused(400, f"{name} is {_kind(value)}, expected true or false.", name)
    return value


def _stops(fields):
    value = fields.pop("stop", [])
    stops = [value] if isinstance(value, str) else value
    if isinstance(stops, list) and len(stops) <= MAX_STOPS and all(isinstance(each, str) for each in stops):
        encoded = tuple(each.encode(errors="replace") for each in stops)
        if all(0 < len(each) <= MAX_STOP_BYTES for each in encoded):
            return encoded
    raise Refused(400, f"stop is not a string of 1 to {MAX_STOP_BYTES} bytes and not an array of at most {MAX_STOPS} "
                  "of them.", "stop")  # fmt: skip


class Text:
    """The text of tokens one by one. What may become a stop is held back, and so is part of a character."""

    def __init__(self, stops):
        self._stops, self._held = stops, b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token):
        """The text that is certain after one more token."""
        self._held += bytes([token])
        begun = [n for each in self._stops for n in range(1, len(each) + 1) if self._held.endswith(each[:n])]
        keep = max(begun, default=0)
        sure, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep:]
        return self._decoder.decode(sure)

    def end(self, reason):
        """The rest, without the stop that has ended the text."""
        if reason == "stop":
            self._held = self._held[: -max(len(each) for each in self._stops if self._held.endswith(each))]
        return self._decoder.decode(self._held, final=True)


class Answer:
    """The parts of an answer that are the same in all of its events."""

    def __init__(self, request):
        self.request, self.generated = request, 0
        self.head = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time()),
                     "model": MODEL}  # fmt: skip

    def body(self, text, reason):
        return {**self.head, "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": reason}]}

    def usage(self):
        prompt, shared = len(self.request.prompt), self.request.shared
        return {"prompt_tokens": prompt, "completion_tokens": self.generated, "total_tokens": prompt + self.generated,
                "prompt_tokens_details": {"cached_tokens": shared}}  # fmt: skip


def failure(reason):
    """The answer to a request that the server has ended."""
    if reason == "closed":
        return Refused(503, "The server shuts down.", code="shutting_down")
    return Refused(500, "A step of the model has failed.", code="step_failed")


def event(data):
    """An event of a stream (server-sent events)."""
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
