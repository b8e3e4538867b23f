"""Properties of the run in JUnit XML."""

from __future__ import annotations

import pytest

from pytest_spiral.report.junit import suite_properties
from pytest_spiral.report.model import Report

__all__ = ["add_suite_properties"]


def add_suite_properties(config: pytest.Config, report: Report) -> None:
    """Add run, verdict, scores and gates as properties of the test suite, where pytest writes JUnit XML."""
    from _pytest.junitxml import xml_key

    xml = config.stash.get(xml_key, None)
    if xml is not None:
        for name, value in suite_properties(report):
            xml.add_global_property(name, value)
