"""Finds the places of Python sources that can be mutated, from their syntax tree."""

import ast

from sites import Site

_COMPARISONS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
                ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"}
_BOUNDS = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
_LEAVING = (ast.Return, ast.Continue, ast.Break)
_HIT = ('import os as _os; _os.environ.get("SACCADE_MUTANT") == "0" and '
        'open(_os.environ["SACCADE_MUTANT_HITS"], "a").write("{number}\\n")\n')


def find(file: str, source: bytes) -> list[Site]:
    """The sites of a file."""
    return _Finder(file, source).sites


def recording(source: bytes, sites: list[tuple[int, Site]]) -> str:
    """The source without a mutation. With SACCADE_MUTANT=0 it records the numbers of the sites that it reaches."""
    tree, lines = ast.parse(source), source.decode().splitlines(True)
    places = [(*_place(tree, lines, site.line(source)), number) for number, site in sites]
    for line, indent, number in sorted(places, reverse=True):
        lines.insert(line - 1, " " * indent + _HIT.format(number=number))
    return "".join(lines)


def _place(tree: ast.Module, lines: list[str], line: int) -> tuple[int, int]:
    """The innermost statement at a line before which another one may be written: its first line, its indentation."""
    first = next(each for each in tree.body if not _is_text_or_future(each))
    place, inner = (first.lineno, 0), list[ast.AST](tree.body)
    while node := next((each for each in inner if _first_line(each) <= line <= each.end_lineno), None):
        text = lines[_first_line(node) - 1]
        is_alone = not text[: node.col_offset].strip() and not text.lstrip().startswith("elif ")
        if isinstance(node, ast.stmt) and is_alone and _first_line(node) > place[0]:
            place = (_first_line(node), node.col_offset)
        inner = [each for each in ast.iter_child_nodes(node) if isinstance(each, (ast.stmt, ast.excepthandler))
                 ] + [each for case in getattr(node, "cases", []) for each in case.body]
    return place


def _first_line(node) -> int:
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])


def _is_text_or_future(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str, source: bytes):
        self.file, self.source, self.sites = file, source, []
        self.starts = [0]
        for line in source.splitlines(True):
            self.starts.append(self.starts[-1] + len(line))
        self.visit(ast.parse(source))

    def _range(self, node) -> tuple[int, int]:
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node) -> str:
        start, end = self._range(node)
        return self.source[start:end].decode()

    def _add(self, node, kind: str, text: str) -> None:
        self.sites.append(Site(self.file, *self._range(node), kind, text))

    def _exchange(self, node, left, right, kind: str, operators: tuple[str, ...], other: str) -> None:
        """Replaces the operator between two operands."""
        start, end = self._range(left)[1], self._range(right)[0]
        between = self.source[start:end].decode()
        for operator in operators:
            if operator in between:
                at = start + len(between[: between.index(operator)].encode())
                self.sites.append(Site(self.file, at, at + len(operator), kind, other))
                return

    def visit_Compare(self, node):
        left = node.left
        for operator, right in zip(node.ops, node.comparators):
            written = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
                       ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in"}[type(operator)]
            self._exchange(node, left, right, "comparison", (written,), _COMPARISONS[type(operator)])
            left = right
        self.generic_visit(node)

    def visit_Constant(self, node):
        if type(node.value) is int or type(node.value) is float:
            self._add(node, "constant", f"({self._text(node)} + 1)")
            if node.value:
                self._add(node, "constant", f"({self._text(node)} - 1)")
        elif type(node.value) is bool:
            self._add(node, "arm", str(not node.value))

    def visit_BoolOp(self, node):
        other = "or" if isinstance(node.op, ast.And) else "and"
        for left, right in zip(node.values, node.values[1:]):
            self._exchange(node, left, right, "logic", ("and" if other == "or" else "or",), other)
        self.generic_visit(node)

    def visit_UnaryOp(self, node):
        if isinstance(node.op, ast.Not):
            self._add(node, "logic", f"bool({self._text(node.operand)})")
        elif isinstance(node.op, ast.USub):
            self._add(node, "sign", f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node):
        pairs = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.FloorDiv: ("//", "*"), ast.BitAnd: ("&", "|"),
                 ast.BitOr: ("|", "&")}
        if type(node.op) in pairs and not (_is_text(node.left) or _is_text(node.right)):
            written, other = pairs[type(node.op)]
            kind = "logic" if written in "&|" else "sign"
            self._exchange(node, node.left, node.right, kind, (written,), other)
        self.generic_visit(node)

    def visit_IfExp(self, node):
        self._add(node.test, "arm", f"(not ({self._text(node.test)}))")
        self.generic_visit(node)

    def visit_If(self, node):
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self._add(node.test, "arm", f"(not ({self._text(node.test)}))")
            if len(node.body) == 1 and isinstance(node.body[0], _LEAVING) and not node.orelse:
                self._add(node.test, "return", f"(({self._text(node.test)}) and False)")
            self.generic_visit(node)

    def visit_Call(self, node):
        if isinstance(node.func, ast.Name) and node.func.id in _BOUNDS:
            self._add(node.func, "bound", _BOUNDS[node.func.id])
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _BOUNDS:
            end = self._range(node.func)[1]
            self.sites.append(Site(self.file, end - len(node.func.attr), end, "bound", _BOUNDS[node.func.attr]))
        self.generic_visit(node)

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Call):
            self._add(node, "call", "None")
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_JoinedStr(self, node):
        """Texts of messages."""

    def visit_Raise(self, node):
        """Messages."""

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node):
        for default in (*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)
