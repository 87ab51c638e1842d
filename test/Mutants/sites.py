"""A place in a source file where an operator of mutation applies."""

import dataclasses
import difflib


@dataclasses.dataclass(frozen=True)
class Site:
    """The bytes [start, end) of a file, and the text that replaces them in a mutant.

    `style` is how a build with many mutants switches: "value", an expression; "condition", an expression as a truth
    value; "call", a statement that is left out; "before", a statement that is inserted at `start`.
    """

    file: str
    start: int
    end: int
    kind: str  # comparison, constant, bound, arm, sign, logic, call, return
    text: str
    style: str = "value"

    def apply(self, source: bytes) -> str:
        """The source with this mutation."""
        return (source[: self.start] + self.text.encode() + source[self.end :]).decode()

    def line(self, source: bytes) -> int:
        """The line of the place."""
        return source.count(b"\n", 0, self.start) + 1

    def changed(self, source: bytes) -> str:
        """The changed lines of the mutant on one line, which identify it in equivalent.txt. They include the statement of a
        condition that is replaced as a whole, and the line before a call that is left out."""
        first = source.rfind(b"\n", 0, self.start) + 1
        last = source.find(b"\n", self.end)
        text = source[first : self.start] + self.text.encode() + source[self.end : last if last >= 0 else len(source)]
        if text.strip() == b"if (false)":
            text += source[last : source.find(b"\n", last + 1)]
        elif text.strip() in (b"None", b"(void)0;"):
            text = source[source.rfind(b"\n", 0, max(first - 1, 0)) + 1 : first] + text
        return " ".join(text.decode().split())

    def patch(self, source: bytes, what: str) -> str:
        """The mutant as a patch, with a line that says what it is."""
        before, after = source.decode().splitlines(True), self.apply(source).splitlines(True)
        lines = difflib.unified_diff(before, after, f"a/{self.file}", f"b/{self.file}")
        return f"{what}\n\n" + "".join(lines)


def innermost(sites: list[Site]) -> list[Site]:
    """The sites without those that overlap another one but are not nested in it."""
    kept: list[Site] = []
    for site in sorted(sites, key=lambda site: (site.start, -site.end)):
        if all(site.end <= other.start or other.end <= site.start or site.end <= other.end for other in kept):
            kept.append(site)
    return kept
