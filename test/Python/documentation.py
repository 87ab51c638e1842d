"""Every block of Python in docs/guides/python.md, docs/guides/masks.md, docs/guides/scores.md, docs/guides/torch.md and the README runs, and prints
what its comments say.

REQUIRES: torch
UNSUPPORTED: asan, tsan
RUN: %python %s %src
"""

import contextlib
import io
import os
import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])
os.chdir(source)
for page, least in ((source / "docs" / "guides" / "python.md", 6), (source / "docs" / "guides" / "masks.md", 1),
                    (source / "docs" / "guides" / "scores.md", 1), (source / "docs" / "guides" / "torch.md", 1), (source / "README.md", 1)):
    text = page.read_text()
    names = {"__name__": page.stem}
    blocks = list(re.finditer(r"```python\n(.*?)```", text, re.S))
    assert len(blocks) >= least, (page, len(blocks))
    for block in blocks:
        # Empty lines before it, so that a traceback has the page's line numbers.
        code = "\n" * text[: block.start(1)].count("\n") + block[1]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page, "exec"), names)
        expected = re.findall(r"print\(.*\)  # (.*)", block[1])
        found = printed.getvalue().splitlines()
        assert found == expected, f"{page}: prints {found}, says {expected}"
