"""Observes a model on a text, or shows a record: python -m saccade.observe MODEL_OR_RECORD [--text TEXT]

Exit codes: 0 success; 1 the model cannot be loaded or observed; 2 usage; 3 a file cannot be read or written.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any

from saccade import _files
from saccade.observe.record import Record

_TILE = 128


class _Failure(Exception):
    """A model that cannot be used, with the reason as its message."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m saccade.observe", description="Observes the attention of a model on a text, or shows a record.")
    parser.add_argument("source", metavar="MODEL_OR_RECORD",
                        help="a folder of Transformers with a tokenizer; module:function, a function without arguments "
                             "that returns a torch.nn.Module of token ids, or a pair of it and a function from a text "
                             "to (arguments of the module by name, tokens); or a record, FILE.json")  # fmt: skip
    parser.add_argument("--text", action="append", help="the text; repeatable: one step for each")
    parser.add_argument("--zoom", metavar="QUERY,KEY", type=_place, action="append", default=[],
                        help="of texts of more than 128 tokens, records the exact weights around this pair; "
                             "repeatable")  # fmt: skip
    parser.add_argument("-o", dest="output", metavar="FILE.json", help="writes the record")
    parser.add_argument("--html", metavar="FILE.html", help="writes the report")
    parser.add_argument("--layer", type=int, help="shows the heads of a layer")
    options = parser.parse_args(arguments)
    is_record = options.source.endswith(".json")
    if is_record and (options.text or options.output or options.zoom):
        parser.error("--text, --zoom and -o are for models")
    if not is_record and not options.text:
        parser.error("a model requires --text")
    if "" in (options.text or ()):
        parser.error("--text is empty")
    try:
        for path in filter(None, (options.output, options.html)):
            _files.check_writable(path)
        record = Record.load(options.source) if is_record else _observe(options)
        if options.output:
            record.save(options.output)
        if options.html:
            from saccade.observe import report

            report.write(record, options.html)
        record.show(options.layer)
    except OSError as error:
        return _fail(error, 3)
    except (ValueError, _Failure) as error:
        return _fail(error, 3 if is_record else 1)
    return 0


def _fail(error: Exception, code: int) -> int:
    print(f"saccade.observe: {error}", file=sys.stderr)
    return code


def _place(text: str) -> tuple[int, int]:
    query, _, key = text.partition(",")
    if not query.isdecimal() or not key.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no pair QUERY,KEY of positions, such as 200,17")
    return int(query), int(key)


def _observe(options: argparse.Namespace) -> Record:
    import torch

    from saccade import NotServed, observe

    source = options.source
    model, encode = _transformers(source) if os.path.isdir(source) else _function(source)
    model.eval()
    try:
        with torch.no_grad(), observe(model, every=1, tile=_TILE, zoom=options.zoom) as record:
            for text in options.text:
                inputs, tokens = encode(text)
                record.tokens = [tokens]
                model(**inputs) if isinstance(inputs, dict) else model(inputs)
    except (NotServed, RuntimeError, TypeError, IndexError) as error:
        raise _Failure(f"{source}: {type(error).__name__}: {error}") from error
    return record


def _transformers(folder: str) -> tuple[Any, Any]:
    """The model and the tokenizer of a folder."""
    try:
        import transformers
    except ImportError:
        raise _Failure(f"{folder} is a folder, which requires the package transformers") from None
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        # The class that was saved has all weights of the folder, and no others.
        kind = getattr(transformers, (config.architectures or [""])[0], transformers.AutoModel)
        model = kind.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise _Failure(f"{folder} is no folder of a model with a tokenizer: {error}") from error

    def encode(text: str) -> tuple[Any, list[str]]:
        inputs = tokenizer(text, return_tensors="pt")
        return dict(inputs), list(tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist()))

    return model, encode


def _function(source: str) -> tuple[Any, Any]:
    """The module that a function returns, and how it reads a text: by default, as the numbers of its bytes."""
    import torch

    module, _, name = source.partition(":")
    if not name:
        raise _Failure(f"{source} is no folder, expected one of Transformers, module:function or a record, FILE.json")
    sys.path.insert(0, "")
    try:
        content = importlib.import_module(module)
    except (ImportError, TypeError, ValueError) as error:
        raise _Failure(f"{source}: the module {module!r} cannot be imported: {error}") from error
    try:
        found = getattr(content, name)()
    except (AttributeError, TypeError, ValueError) as error:
        raise _Failure(f"{source} is not a function without arguments: {type(error).__name__}: {error}") from error
    model, encode = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    if not isinstance(model, torch.nn.Module):
        raise _Failure(f"{source} returns {model!r:.80}, expected a torch.nn.Module or a pair of it and a function "
                       "of the text")

    def encode_bytes(text: str) -> tuple[Any, list[str]]:
        content = text.encode()
        return torch.tensor([list(content)]), [chr(x) for x in content]

    return model, encode or encode_bytes


if __name__ == "__main__":
    sys.exit(main())
