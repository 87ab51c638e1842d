"""Finds the places of C++ sources that can be mutated, from clang's syntax tree."""

import contextlib
import importlib.util
import json
import pathlib
import re
import shlex
import sys

from sites import Site

_BINDINGS = ("/usr/lib/python3/dist-packages", "/usr/lib/llvm-22/lib/python3.11/site-packages")
_LIBRARY = "/usr/lib/llvm-22/lib/libclang-22.so.1"
_COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
# Predicates of emitted comparisons.
_PREDICATES = {"slt": "sle", "sle": "slt", "sgt": "sge", "sge": "sgt", "ult": "ule", "ule": "ult", "ugt": "uge",
               "uge": "ugt", "eq": "ne", "ne": "eq", "OLT": "OLE", "OLE": "OLT", "OGT": "OGE", "OGE": "OGT",
               "OEQ": "ONE", "UNE": "UEQ", "UEQ": "UNE"}
# Functions that compute, or emit code that does.
_BOUNDS = {"min": "max", "max": "min", "minf": "maxf", "maxf": "minf", "minimum": "maximum", "maximum": "minimum",
           "floorDiv": "ceilDiv", "ceilDiv": "floorDiv", "roundDown": "roundUp", "roundUp": "roundDown",
           "both": "either", "either": "both"}
_SIGNS = {"add": "sub", "sub": "add", "addf": "subf", "subf": "addf"}
_OPS = {"MinSIOp": "MaxSIOp", "MaxSIOp": "MinSIOp", "AddIOp": "SubIOp", "SubIOp": "AddIOp", "AddFOp": "SubFOp",
        "SubFOp": "AddFOp", "AndIOp": "OrIOp", "OrIOp": "AndIOp", "MaximumFOp": "MinimumFOp",
        "MinimumFOp": "MaximumFOp", "FloorDivSIOp": "CeilDivSIOp", "CeilDivSIOp": "FloorDivSIOp"}
_LEAVING = ("RETURN_STMT", "BREAK_STMT", "CONTINUE_STMT")


def clang():
    """The bindings of libclang 22, or None."""
    for folder in _BINDINGS:
        path = pathlib.Path(folder, "clang", "cindex.py")
        if path.exists() and pathlib.Path(_LIBRARY).exists():
            if "clang.cindex" not in sys.modules:
                spec = importlib.util.spec_from_file_location("clang.cindex", path)
                module = importlib.util.module_from_spec(spec)
                sys.modules["clang.cindex"] = module
                spec.loader.exec_module(module)
                module.Config.set_library_file(_LIBRARY)
            return sys.modules["clang.cindex"]
    return None


def neighbours(literal: str) -> list[str]:
    """The integer literals of C++ that are one more and, except for 0, one less, in the same base and with the same
    suffix. None for user-defined literals."""
    for prefix, digits, base, form in (("0[xX]", "[0-9a-fA-F']+", 16, "0x{:x}"), ("0[bB]", "[01']+", 2, "0b{:b}"),
                                       ("0'?", "[0-7']+", 8, "0{:o}"), ("", "[0-9][0-9']*", 10, "{}")):
        if match := re.fullmatch(f"{prefix}({digits})([uUlLzZ]*)", literal):
            number = int(match[1].replace("'", ""), base)
            return [form.format(each) + match[2] for each in (number + 1, number - 1) if each >= 0]
    return []


class Finder:
    """Finds the sites of the files of a configured build."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.commands: dict[str, dict] = {}  # by source file; those of a unity build are compiled by the same command
        for each in json.loads((folder / "build" / "dev" / "compile_commands.json").read_text()):
            if "RuntimeEmbedded" not in each["command"]:
                self.commands |= dict.fromkeys([each["file"], *self._included(pathlib.Path(each["file"]))], each)
        self.cindex = clang()
        self.index = self.cindex.Index.create()

    def _included(self, unit: pathlib.Path) -> list[str]:
        """The sources that a file of a unity build includes."""
        lines = unit.read_text().splitlines() if unit.exists() else []
        if not lines or not lines[0].startswith("// Generated: the sources of one compilation"):
            return []
        return [str(self.folder / name) for name in re.findall(r'^#include "(.+)"$', "\n".join(lines), re.M)]

    def find(self, file: str) -> list[Site]:
        """The sites of a file, named relative to the folder; none if it is not compiled."""
        command = self.commands.get(str(self.folder / file))
        if command is None:
            return []
        arguments = shlex.split(command["command"])[1:]
        arguments = [each for i, each in enumerate(arguments) if each not in ("-c", "-o", command["file"])
                     and arguments[i - 1] != "-o"]
        with contextlib.chdir(command["directory"]):  # the precompiled header's path is relative
            unit = self.index.parse(str(self.folder / file), arguments)
        return _Visitor(self.cindex, unit, file, (self.folder / file).read_bytes()).sites


def _macro_calls(source: bytes) -> list[tuple[int, int]]:
    """The uses of macros with arguments, whose text is not that of the tree."""
    found = []
    for match in re.finditer(rb"\b(assert|[A-Z][A-Z0-9_]{3,})\(", source):
        depth, at = 1, match.end()
        while depth and at < len(source):
            depth += {ord("("): 1, ord(")"): -1}.get(source[at], 0)
            at += 1
        found.append((match.start(), at))
    return found


class _Visitor:
    def __init__(self, cindex, unit, file: str, source: bytes):
        self.kinds, self.file, self.source = cindex.CursorKind, file, source
        self.sites: list[Site] = []
        self.macros = _macro_calls(source)
        self.name = unit.spelling
        top = [each for each in unit.cursor.get_children() if self._is_here(each)]
        for cursor in top:
            self._visit(cursor, None)
        self.sites = list(dict.fromkeys(self.sites))

    def _is_here(self, cursor) -> bool:
        start, end = cursor.extent.start.file, cursor.extent.end.file
        return start is not None and end is not None and start.name == end.name == self.name

    def _text(self, cursor) -> str:
        return self.source[cursor.extent.start.offset : cursor.extent.end.offset].decode()

    def _add(self, start: int, end: int, kind: str, text: str, style: str = "value") -> None:
        if not any(first < end and start < last for first, last in self.macros):
            self.sites.append(Site(self.file, start, end, kind, text, style))

    def _replace(self, cursor, kind: str, text: str, style: str = "value") -> None:
        self._add(cursor.extent.start.offset, cursor.extent.end.offset, kind, text, style)

    def _visit(self, cursor, parent) -> None:
        kinds, kind = self.kinds, cursor.kind
        if kind in (kinds.STATIC_ASSERT, kinds.ENUM_DECL, kinds.TEMPLATE_REF, kinds.TYPE_REF):
            return
        if not self._is_here(cursor):  # of an included file
            return
        if kind in (kinds.VAR_DECL, kinds.FIELD_DECL) and "constexpr" in self._before_name(cursor):
            return
        children = [each for each in cursor.get_children() if self._is_here(each)]
        if kind == kinds.CASE_STMT:
            children = children[1:]
        handler = getattr(self, "_" + kind.name.lower(), None)
        if handler is not None:
            handler(cursor, children, parent)
        for child in children:
            self._visit(child, cursor)

    def _before_name(self, cursor) -> str:
        start = self.source.rfind(b"\n", 0, cursor.extent.start.offset) + 1
        return self.source[start : cursor.location.offset].decode()

    # --- expressions -------------------------------------------------------------------------------------------------

    def _between(self, left, right) -> tuple[int, int, str]:
        """The place and text of the operator between two operands."""
        start, end = left.extent.end.offset, right.extent.start.offset
        text = self.source[start:end].decode()
        operator = text.strip()
        start += len(text[: text.find(operator)].encode()) if operator else 0
        return start, start + len(operator.encode()), operator

    def _exchange(self, cursor, kind: str, start: int, end: int, text: str) -> None:
        """The mutant with [start, end) of an expression replaced."""
        first, last = cursor.extent.start.offset, cursor.extent.end.offset
        mutated = (self.source[first:start] + text.encode() + self.source[end:last]).decode()
        self._replace(cursor, kind, f"({mutated})" if kind == "logic" else mutated)

    def _binary_operator(self, cursor, children, parent) -> None:
        if len(children) != 2:
            return
        start, end, operator = self._between(*children)
        if operator in _COMPARISONS:
            self._exchange(cursor, "comparison", start, end, _COMPARISONS[operator])
        elif operator in ("&&", "||"):
            self._exchange(cursor, "logic", start, end, {"&&": "||", "||": "&&"}[operator])
        elif operator in ("+", "-") and "*" not in cursor.type.spelling:
            self._exchange(cursor, "sign", start, end, {"+": "-", "-": "+"}[operator])

    def _unary_operator(self, cursor, children, parent) -> None:
        text = self._text(cursor)
        if text.startswith("-") and not text.startswith("--") and children:
            self._replace(cursor, "sign", self._text(children[0]))
        elif text.startswith("!") and children:
            self._replace(cursor, "logic", f"static_cast<bool>({self._text(children[0])})", "condition")

    def _conditional_operator(self, cursor, children, parent) -> None:
        if len(children) == 3:
            self._replace(children[0], "arm", f"!({self._text(children[0])})", "condition")

    def _integer_literal(self, cursor, children, parent) -> None:
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        if self.source[start - 1 : start] in (b"<", b"[") or self.source[end : end + 1] in (b">", b"]"):
            return
        # Immediates of template arguments after the first.
        if parent is not None and parent.kind in (self.kinds.TYPE_REF, self.kinds.TEMPLATE_REF):
            return
        for text in neighbours(self._text(cursor)):
            self._replace(cursor, "constant", text)

    def _floating_literal(self, cursor, children, parent) -> None:
        text = self._text(cursor)
        if text and text[0].isdigit():
            self._replace(cursor, "constant", f"({text} + 1)")

    def _call_expr(self, cursor, children, parent) -> None:
        name, text = cursor.spelling, self._text(cursor)
        if name.startswith("operator") and len(children) == 3 and name[8:] in _COMPARISONS:
            start, end, operator = self._between(children[0], children[2])
            if operator in _COMPARISONS:
                self._exchange(cursor, "comparison", start, end, _COMPARISONS[operator])
            return
        if not children or not text.endswith(")"):
            return
        callee = children[0]
        arguments = list(cursor.get_arguments())
        if name == "select" and len(arguments) >= 3:
            x, y = arguments[-2], arguments[-1]
            first, last = cursor.extent.start.offset, cursor.extent.end.offset
            middle = self.source[x.extent.end.offset : y.extent.start.offset].decode()
            head = self.source[first : x.extent.start.offset].decode()
            tail = self.source[y.extent.end.offset : last].decode()
            self._replace(cursor, "arm", head + self._text(y) + middle + self._text(x) + tail)
        written = self._text(callee)
        for table, kind in ((_BOUNDS, "bound"), (_SIGNS, "sign")):
            if name in table and written.endswith(name):
                end = callee.extent.end.offset
                self._exchange(cursor, kind, end - len(name), end, table[name])
        if name == "create" and written.endswith("::create"):
            op = written.removesuffix("::create").rpartition("::")[2]
            if op in _OPS:
                end = callee.extent.end.offset - len("::create")
                self._exchange(cursor, "bound" if op[:2] in ("Mi", "Ma", "Fl", "Ce") else "sign", end - len(op), end,
                               _OPS[op])

    def _decl_ref_expr(self, cursor, children, parent) -> None:
        text = self._text(cursor)
        qualifier, _, name = text.rpartition("::")
        if qualifier and name in _PREDICATES and self.source[cursor.extent.end.offset :][:1] not in (b">", b":"):
            if self.source[: cursor.extent.start.offset].rstrip().endswith(b"case"):
                return
            self._replace(cursor, "comparison", f"{qualifier}::{_PREDICATES[name]}")

    # --- statements --------------------------------------------------------------------------------------------------

    def _if_stmt(self, cursor, children, parent) -> None:
        kinds = self.kinds
        if not children or not children[0].kind.is_expression():
            return
        condition = children[0]
        self._replace(condition, "arm", f"!({self._text(condition)})", "condition")
        then = children[1] if len(children) == 2 else None
        if then is not None and then.kind == kinds.COMPOUND_STMT:
            inside = list(then.get_children())
            then = inside[0] if len(inside) == 1 else None
        if then is not None and then.kind.name in _LEAVING:
            self._replace(condition, "return", "false", "condition")

    def _for_stmt(self, cursor, children, parent) -> None:
        for child in children:
            if child.kind == self.kinds.BINARY_OPERATOR and len(sides := list(child.get_children())) == 2:
                _, _, operator = self._between(*sides)
                if operator in ("<", "<=", "!=") and self._is_integer(sides[1]):
                    self._replace(sides[1], "bound", f"({self._text(sides[1])}) - 1")

    def _is_integer(self, cursor) -> bool:
        name = cursor.type.get_canonical().spelling.replace("const ", "")
        return name in ("int", "unsigned int", "long", "unsigned long", "long long", "unsigned long long")

    def _compound_stmt(self, cursor, children, parent) -> None:
        for child in children:
            if child.kind == self.kinds.CALL_EXPR or (child.kind == self.kinds.UNEXPOSED_EXPR and self._is_call(child)):
                self._replace(child, "call", "(void)0", "call")
        self._early_return(children, parent)

    def _is_call(self, cursor) -> bool:
        inner = list(cursor.get_children())
        return len(inner) == 1 and inner[0].kind in (self.kinds.CALL_EXPR, self.kinds.UNEXPOSED_EXPR) and (
            inner[0].kind == self.kinds.CALL_EXPR or self._is_call(inner[0]))

    def _early_return(self, statements, function) -> None:
        """Leaves a function before one of its statements."""
        kinds = (self.kinds.FUNCTION_DECL, self.kinds.CXX_METHOD)
        if function is None or function.kind not in kinds or len(statements) < 2:
            return
        result = function.result_type.spelling
        given = {"void": "return", "bool": "return false", "LogicalResult": "return mlir::success()",
                 "llvm::LogicalResult": "return mlir::success()"}.get(result)
        if given is None:
            return
        for statement in statements[1:] if result == "void" else statements[:1]:
            start = statement.extent.start.offset
            self._add(start, start, "return", f"{given}; ", "before")
