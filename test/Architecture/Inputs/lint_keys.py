"""lint_keys.py CMAKE: the keys under which CMAKE/lint.py remembers clean compilations change with what they read, and
a change is checked in compilations that read it."""

import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import lint

FILES = {
    "lib/A.cpp": '#include "A.h"\n  #  include <saccade/B.h>\n#include <vector>\n',
    "lib/A.h": "#ifdef A\n#include SOME_MACRO\n#endif\n",
    "include/saccade/B.h": '#include "saccade/C.h.inc"\n',
    "build/include/saccade/C.h.inc": "int generated();\n",
    "build/pch.hxx": "#include <saccade/D.h>\n",
    "include/saccade/D.h": '#include "saccade/B.h"\n#include "saccade/D.h"\n',
    "build/A.0.cpp": '#include "lib/A.cpp"\n',
    "include/saccade/Unrelated.h": "",
}


def key(root: pathlib.Path, flags: str = "", common: str = "version") -> str:
    lint.digest.cache_clear()
    lint.includes.cache_clear()
    command = f"clang++ -I{root} -I../include -Iinclude -Xclang -include-pch -Xclang pch.hxx.pch {flags} -c A.0.cpp"
    entry = {"directory": str(root / "build"), "file": str(root / "build/A.0.cpp"), "command": command}
    (root / "build/compile_commands.json").write_text(json.dumps([entry]))
    lint.ROOT = root
    assert lint.compilations(root / "build", ["lib/Other.cpp"]) == []
    (unit,) = lint.compilations(root / "build", ["lib/A.cpp"])
    return unit.key(common)


with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder).resolve()
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    before = key(root)
    assert key(root) == before
    assert key(root, flags="-DA") != before, "the command"
    assert key(root, common="newer") != before, ".clang-tidy and the version"
    for name, text in FILES.items():
        (root / name).write_text(text + "// changed\n")
        assert (key(root) != before) == ("Unrelated" not in name), name
        (root / name).write_text(text)
    (unit,) = lint.compilations(root / "build", ["lib/A.cpp"])
    changed = ["include/saccade/D.h", "include/saccade/Unrelated.h", "lib/A.cpp", "lib/A.h"]
    assert lint.reading([unit], changed) == ([unit], ["include/saccade/Unrelated.h"])
    assert lint.reading([unit], changed[1:2]) == lint.reading([], changed[1:2]) == ([], changed[1:2])
    lint.LIMIT = 0
    assert lint.reading([unit], changed) == ([], changed), "more than the limit"
    # A header that comes into being may hide the one that was found before.
    (root / "lib/saccade").mkdir()
    (root / "lib/saccade/B.h").write_text("")
    assert key(root) != before
