"""Bodies of requests, and the text of tokens with stops and characters of several bytes, of examples/serve."""

from __future__ import annotations

import json
import random

import pytest
import served_text  # the path of the example
from protocol import Refused, Text, parse

BASE = {"model": "opticks", "prompt": "a"}


def parsed(**fields):
    return parse(json.dumps({**BASE, **fields}).encode(), served_text.CONTEXT)


def test_defaults_and_all_parameters():
    given, is_streamed, has_usage = parsed()
    assert given.pop("seed") != parsed()[0]["seed"]
    assert given == {"prompt": b"a", "max_tokens": 16, "temperature": 0, "stop": ()}
    assert not is_streamed and not has_usage
    given, is_streamed, has_usage = parsed(
        prompt=[0, 255], max_tokens=510, temperature=2, seed=-3, stop=["ä", "b"], stream=True,
        stream_options={"include_usage": True}, user="u", n=1, top_p=1.0, logprobs=None, echo=False)  # fmt: skip
    assert given == {"prompt": b"\0\xff", "max_tokens": 510, "temperature": 2, "seed": -3, "stop": ("ä".encode(), b"b")}
    assert is_streamed and has_usage


@pytest.mark.parametrize(("body", "status", "message"), [
    (b"", 400, "The body is not JSON: Expecting value"),
    (b'{"model": "opticks", ', 400, "The body is not JSON"),
    (b"\xff\xfe", 400, "The body is not JSON"),
    (b"[" * 60000, 400, "The body is not JSON: maximum recursion depth"),
    (b'{"model": "opticks", "prompt": "a", "seed": 1' + b"0" * 5000 + b"}", 400, "The body is not JSON: Exceeds the limit"),
    (b'"text"', 400, "The body is a string, expected an object."),
    (b"null", 400, "The body is null, expected an object."),
    (b'{"model": "opticks", "prompt": "a", "temperature": NaN}', 400, "temperature is not a number from 0 to 2."),
    (b'{"model": "opticks", "prompt": "\\ud800"}', 400, "prompt has half of a surrogate pair, expected text."),
])
def test_bodies_that_are_refused(body, status, message):
    with pytest.raises(Refused) as caught:
        parse(body, served_text.CONTEXT)
    assert caught.value.status == status and str(caught.value).startswith(message)


@pytest.mark.parametrize(("fields", "message"), [
    ({"model": None}, "model is missing, expected 'opticks'."),
    ({"prompt": None}, "prompt is not a string and not an array of tokens"),
    ({"prompt": 7}, "prompt is not a string"),
    ({"prompt": ["a", "b"]}, "prompt is not a string"),
    ({"prompt": [1, 256]}, "prompt is not a string"),
    ({"prompt": [True]}, "prompt is not a string"),
    ({"prompt": ""}, "prompt is empty, expected at least one token."),
    ({"prompt": []}, "prompt is empty"),
    ({"prompt": "ä" * 249}, "The prompt has 498 tokens and max_tokens is 16, expected at most 512 in all."),
    ({"max_tokens": 512}, "The prompt has 1 tokens and max_tokens is 512"),
    ({"max_tokens": 0}, "max_tokens is not an integer from 1 to 512."),
    ({"max_tokens": 1.0}, "max_tokens is not an integer"),
    ({"max_tokens": True}, "max_tokens is not an integer"),
    ({"max_tokens": 10**30}, "max_tokens is not an integer"),
    ({"temperature": "1"}, "temperature is not a number from 0 to 2."),
    ({"temperature": -0.1}, "temperature is not a number"),
    ({"temperature": True}, "temperature is not a number"),
    ({"temperature": 10**400}, "temperature is not a number"),
    ({"seed": 2**63}, "seed is not an integer"),
    ({"stop": ""}, "stop is not a string of 1 to 64 bytes and not an array of at most 4 of them."),
    ({"stop": ["a", 1]}, "stop is not"),
    ({"stop": list("abcde")}, "stop is not"),
    ({"stop": "ä" * 33}, "stop is not"),
    ({"stop": {}}, "stop is not"),
    ({"stream": 1}, "stream is a number, expected true or false."),
    ({"stream_options": {"include_usage": True}}, "stream_options is given, expected stream to be true."),
    ({"stream": True, "stream_options": []}, "stream_options is an array, expected an object."),
    ({"stream": True, "stream_options": {"usage": True}}, "'usage' is not a parameter."),
    ({"n": 2}, "n is not supported, expected 1, or none."),
    ({"echo": True}, "echo is not supported, expected false, or none."),
    ({"max_token": 3}, "'max_token' is not a parameter."),
])
def test_parameters_that_are_refused(fields, message):
    with pytest.raises(Refused) as caught:
        parsed(**fields)
    assert caught.value.status == 400 and str(caught.value).startswith(message)
    assert caught.value.parameter in {*fields, "prompt", "stream_options", "usage"}


def test_another_model():
    with pytest.raises(Refused) as caught:
        parsed(model="other")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


def test_text_with_stops_and_characters():
    """The pieces are what the whole text up to its first stop is, and come as early as stops permit."""
    draw, stopped = random.Random(1), 0
    for _ in range(2000):
        data = "".join(draw.choices("abä€𝄞", k=draw.randrange(1, 12))).encode()[draw.randrange(2):]
        stops = tuple("".join(draw.choices("abä", k=draw.randrange(1, 4))).encode() for _ in range(draw.randrange(3)))
        text, seen, reason, pieces = Text(stops), b"", "length", []
        for token in data:
            seen += bytes([token])
            pieces.append(text.add(token))
            longest = max((n for each in stops for n in range(1, len(each) + 1) if seen.endswith(each[:n])), default=0)
            assert "".join(pieces) == decoded(seen[: len(seen) - longest], final=False)
            ends = [each for each in stops if seen.endswith(each)]
            if ends:
                seen, reason, stopped = seen[: -max(map(len, ends))], "stop", stopped + 1
                break
        assert "".join([*pieces, text.end(reason)]) == decoded(seen, final=True)
    assert stopped > 200


def decoded(data, final):
    """Of the bytes, without an incomplete character at the end if more may follow."""
    text = data.decode(errors="replace")
    for n in range(1, 4):
        tail = data[-n:]
        if not final and len(tail) == n and tail[0] >= 0xC0:
            size = 2 if tail[0] < 0xE0 else 3 if tail[0] < 0xF0 else 4
            if n < size:
                return data[:-n].decode(errors="replace")
    return text
