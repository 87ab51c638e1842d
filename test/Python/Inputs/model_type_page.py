"""docs/reference/model-types.md: the table of what was found of each model type, written and read."""

import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "reference" / "model-types.md"

HEAD = """# Model types of Transformers

<!-- This page is generated: `test/Fuzz/model_types.py --records FILE --page` runs the types and writes it. -->

Each model type of Transformers {version} was built from its default configuration, shrunken, with random weights. It was run with the
implementation set to "saccade" and to "eager" afterwards, as some types of own code cannot be built with the name "saccade": without
padding and, where it takes a mask for tokens, with padding on either side. Outputs agree within 1e-4 of their largest element and, for
types that are served, gradients within 1e-3 of their norm. Outputs that depend on tokens of padding are left out. "Served" means that
calls of Saccade's attention function were counted.
[Models of Transformers](../guides/transformers.md) is the guide.

| result | types |
|---|--:|
"""
# Results and what they mean, in the order of the page.
MEANINGS = {
    "served": "equal, and all attention is served",
    "served in part": "equal; some modules compute attention in the model's own code or by PyTorch's operators",
    "as sdpa": 'served, and equal to "sdpa"; the two differ from "eager" (a fault of the model)',
    "own code": "equal; the model does not call the AttentionInterface, and Saccade is not used",
    "no attention": "equal; there is no attention, or none that PyTorch computes as a softmax of scores",
    "refused": 'the call raises an exception that asks for "eager"',
    "wrong": "results differ",
    "not built": "no shrunken configuration and inputs were found with which the model runs",
}


def result_of(record):
    return "served in part" if record["result"] == "served" and record["own"] else record["result"]


def write(records, version, total):
    """Writes the page from records: {type: fields of a Record}. `total`: the number of types that there are."""
    groups = {result: sorted(name for name, each in records.items() if result_of(each) == result) for result in MEANINGS}
    lines = [f"| {result}: {meaning} | {len(groups[result])} |" for result, meaning in MEANINGS.items()]
    if len(records) < total:
        lines.append(f"| not run | {total - len(records)} |")
    text = HEAD.format(version=version) + "\n".join(lines) + "\n"
    for result, names in groups.items():
        if not names:
            continue
        text += f"\n## {result[0].upper()}{result[1:]}\n\n"
        if result in ("refused", "wrong", "as sdpa", "not built"):
            text += "| type | reason |\n|---|---|\n"
            text += "".join(f"| `{name}` | {_cell(records[name]['reason'])} |\n" for name in names)
        else:
            text += _wrapped([f"`{name}`" for name in names])
    PAGE.write_text(text)


def _cell(reason):
    text = re.sub(r"^RuntimeError: (?=\w+Error)", "", reason)[:110]
    return text.translate(str.maketrans("|`<>[]", "/'()()")).strip()


def _wrapped(words, width=135):
    lines = [""]
    for i, word in enumerate(words):
        word += "." if i == len(words) - 1 else ","
        if len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return "\n".join(lines) + "\n"


def read():
    """{type: result} of the page, without the reasons."""
    found, result = {}, None
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            result = line[3:].lower()
        elif result is not None:
            names = re.findall(r"`([^`]+)`", line.split("|")[1] if line.startswith("|") else line)
            found |= dict.fromkeys(names, result)
    return found
