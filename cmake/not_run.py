"""Prints in one line which tests of a run of the suite this machine could not run, and why.

Usage: not_run.py REPORT.xml...
The reports are those of lit and pytest in the JUnit format; a runner that ran no test writes none. Tests that a filter
or a sanitized build leaves out are not listed: the machine is not the reason.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree

OTHER_REASONS = ("Unsupported configuration", "Test not selected")


def skipped(report: str) -> dict[str, list[str]]:
    """The names of the skipped tests of a report by the reason."""
    found: dict[str, list[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        for skip in case.iter("skipped"):
            reason = skip.get("message", "no reason given")
            if not reason.startswith(OTHER_REASONS):
                found.setdefault(reason, []).append(case.get("name", "?"))
    return found


def main() -> None:
    reports = [report for report in sys.argv[1:] if pathlib.Path(report).exists()]
    parts = [f"{reason}: {', '.join(names)}" for report in reports for reason, names in skipped(report).items()]
    print("Not run on this machine:", "; ".join(parts) or "nothing")


if __name__ == "__main__":
    main()
