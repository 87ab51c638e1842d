"""Attention patterns as text of a dialect. Each pattern and its twin (commuted operands, other names) must be raised to
one attention op with the same result."""

import re
import subprocess


class Patterns:
    """Patterns by name: the builder of a function @pattern, the arguments of a run, and text expected in the op."""

    def __init__(self, graph):
        self.graph, self.patterns = graph, {}

    def pattern(self, arguments, expects=(), forbids=()):
        """Registers a builder. `arguments` are those of saccade-run, such as "2x4x9x16:f32"."""
        def register(build):
            self.patterns[build.__name__] = (build, arguments, expects, forbids)
            return build
        return register

    def check(self, path):
        """Raises and runs all patterns; `path` is a temporary file."""
        for name, (build, arguments, expects, forbids) in self.patterns.items():
            for twin in (False, True):
                graph = self.graph(twin)
                build(graph)
                self.check_one(f"{name}{' (twin)' if twin else ''}", graph.text(), path, expects, forbids)
            # Run the twin. The reference evaluates the graph before raising.
            run("saccade-run", path, *(f"--arg={each}" for each in arguments), "--check")
            print(f"{name}: one attention")

    def check_one(self, name, text, path, expects, forbids):
        with open(path, "w") as file:
            file.write(text)
        raised = run("saccade-compile", "--emit=mlir", "--stop-after=transforms", path, "-o", "-")
        is_one = raised.count("= attn.attention") == 1 and "math.exp" not in raised
        assert is_one, f"{name}: not one attention:\n{text}\n{raised}"
        op = re.search(r"= attn.attention.*", raised, re.S).group(0)
        for expected in expects:
            assert expected in op, f"{name}: no '{expected}' in\n{raised}"
        for forbidden in forbids:
            assert forbidden not in op, f"{name}: '{forbidden}' in\n{raised}"


def run(*command):
    """The stdout of a command, which must succeed."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Text:
    """Lines of a function, with value names of the pattern or of its twin. Values are (name, shape, element); None is a
    dynamic extent."""

    def __init__(self, twin, prefix="v"):
        self.twin, self.lines, self.arguments, self.result, self.more = twin, [], [], None, []
        self.prefix = f"other_{prefix}" if twin else prefix

    def fresh(self):
        return f"%{self.prefix}{len(self.lines)}"

    @staticmethod
    def type(value):
        return f"tensor<{''.join(('?' if extent is None else str(extent)) + 'x' for extent in value[1])}{value[2]}>"

    def argument(self, *shape, element="f32"):
        value = (f"%{'in' if self.twin else 'arg'}{len(self.arguments)}", shape, element)
        self.arguments.append(value)
        return value

    def emit(self, text, shape, element):
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name, tuple(shape), element

    def text(self):
        arguments = ", ".join(f"{value[0]}: {self.type(value)}" for value in self.arguments)
        body = "\n".join(self.lines)
        return (f"module {{\nfunc.func @pattern({arguments}) -> {self.type(self.result)} {{\n{body}\n"
                f"  return {self.result[0]} : {self.type(self.result)}\n}}\n{''.join(self.more)}}}\n")
