"""Finds the places of Python sources that can be mutated, from their syntax tree."""

import ast

from sites import Site

_COMPARISONS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
                ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"}
_BOUNDS = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
_LEAVING = (ast.Return, ast.Continue, ast.Break)
_HIT = ('import os as _os; "SACCADE_MUTANT_HITS" in _os.environ and '
        'open(_os.environ["SACCADE_MUTANT_HITS"], "a").write("1\\n")')


def find(file: str, source: bytes) -> list[Site]:
    """The sites of a file."""
    return _Finder(file, source).sites


def recording(site: Site, source: bytes) -> str:
    """The mutated source, which also records that the function with the mutation runs."""
    text = site.apply(source).encode()
    tree = ast.parse(source)
    line = site.line(source)
    function = next((node for node in _outer_functions(tree) if node.lineno <= line <= (node.end_lineno or 0)), None)
    if function is None:
        return _at_line(text.decode(), _after_future(tree), _HIT, "")
    body = function.body
    is_docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    inside = [each for each in body[is_docstring:] if each.lineno <= line <= (each.end_lineno or 0)]
    statement = (inside or body[is_docstring:] or body)[0]
    if statement.lineno == function.lineno:  # on the line of `def`
        return text.decode()
    return _at_line(text.decode(), statement.lineno, _HIT, " " * statement.col_offset)


def _outer_functions(tree: ast.AST) -> list[ast.FunctionDef]:
    found: list[ast.FunctionDef] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            found.append(node)
        elif isinstance(node, (ast.ClassDef, ast.If, ast.Try, ast.With)):
            found += _outer_functions(node)
    return found


def _after_future(tree: ast.Module) -> int:
    """The line before which a statement may be inserted."""
    rest = [each for each in tree.body if not (isinstance(each, ast.ImportFrom) and each.module == "__future__")
            and not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    return rest[0].lineno if rest else 1


def _at_line(text: str, line: int, statement: str, indent: str) -> str:
    lines = text.splitlines(True)
    return "".join([*lines[: line - 1], f"{indent}{statement}\n", *lines[line - 1 :]])


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
