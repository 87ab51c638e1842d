"""Warns about likely mistakes in calls of attention, and in attention written by hand: `saccade.lint`."""

from saccade.linting.report import RULES, Finding, LintReport, lint

__all__ = ["RULES", "Finding", "LintReport", "lint"]
