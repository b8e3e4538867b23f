"""The end of `pytest --help`: what a gate may speak about. Loaded for that alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from math import isinf

from pytest_spiral.evaluate.spiral import spiral_metric_scales
from pytest_spiral.gates import Scale
from pytest_spiral.report.lines import WIDTH
from pytest_spiral.spiral.protocol import load_protocol
from pytest_spiral.tempaffect.card_metrics import metric_scales

__all__ = ["gate_help"]


def gate_help(protocol: str = "per-10k-chars") -> str:
    """Grammar and metrics of `--gate`, in 80 columns."""
    lines = [
        "metrics of --gate:",
        "  'PATH >= BOUND' or 'PATH <= BOUND'; BOUND is a number or, with --baseline,",
        "  'baseline', 'baseline - 5', 'baseline + 0.02'. tempaffect[raw] and",
        "  tempaffect[schema] name one prompting mode; otherwise all must hold.",
    ]
    lines += _list("tempaffect", metric_scales())
    lines += _list("spiral", spiral_metric_scales(load_protocol(protocol)))
    return "\n".join(lines)


def _list(suite: str, metrics: Mapping[str, Scale]) -> Iterator[str]:
    """Names grouped by scale."""
    groups: dict[Scale, list[str]] = {}
    for name, scale in metrics.items():
        groups.setdefault(scale, []).append(f"{suite}.{name}")
    for (low, high), names in groups.items():
        span = f"from {low:g} up" if isinf(high) else f"up to {high:g}" if isinf(low) else f"{low:g} to {high:g}"
        yield from textwrap.wrap(
            f"{span}: {', '.join(names)}", WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False
        )
