"""Hooks of MkDocs (mkdocs.yml): pages that are generated or are stored outside of docs/ become pages of the site.

`reference/dialect.md` and `reference/passes.md` take the Markdown that `saccade-docs` writes from the first build
folder that has it. The tables and plots of benchmarks/results become pages under `results/`, and links to them and
from them are rewritten. Pages of docs/internals are added to the navigation.
"""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
GENERATED = re.compile(r"<!-- generated: (\S+) -->")
MISSING = "*This part is generated. `./dev docs` builds it.*\n"


def on_config(config):
    """Adds the pages of docs/internals to the section of the design, titled by their headings."""
    internals = next(section["Internals"] for section in config.nav if "Internals" in section)
    internals += [f"internals/{page.name}" for page in sorted((ROOT / "docs" / "internals").glob("*.md"))]
    return config


def on_files(files, config):
    for path in sorted(RESULTS.glob("*")):
        if path.suffix in (".md", ".png", ".csv"):
            content = path.read_bytes()
            if path.suffix == ".md":
                content = f"# {path.stem}\n\n".encode() + content.replace(b"](../../docs/", b"](../")
            files.append(File.generated(config, f"results/{path.name}", content=content))
    return files


def read_generated(pattern):
    """The files that `saccade-docs` wrote, joined. Headings of TableGen become one level lower, as parts of a page."""
    for folder in [ROOT / "build" / "dev" / "docs", *sorted(ROOT.glob("build/*/docs"))]:
        if pages := sorted(folder.glob(pattern)):
            return "\n".join(shift_headings(page) for page in pages)
    return MISSING


def shift_headings(page):
    text = re.sub(r"<!--.*?-->\n?", "", page.read_text(), flags=re.S).replace("[TOC]\n", "")
    return text if page.name == "passes.md" else re.sub(r"^#", "##", text, flags=re.M)


def on_page_markdown(markdown, page, **_):
    here = posixpath.dirname(page.file.src_uri)

    def link(found):
        return f"]({posixpath.relpath('results/' + found[1], here or '.')})"

    markdown = re.sub(r"\]\((?:\.\./)+benchmarks/results/([^)]+)\)", link, markdown)
    return GENERATED.sub(lambda found: read_generated(found[1]), markdown)
