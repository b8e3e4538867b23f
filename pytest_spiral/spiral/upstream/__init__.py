"""Result files of the public Spiral-Bench implementation: reading, and writing in their shape.

{run_id: {file_key: {prompt_key: [conversation, ...]}, "__meta__": {...}, "scoring_summary": [...]}}
"""

from __future__ import annotations

from pytest_spiral.spiral.upstream.reading import load_upstream
from pytest_spiral.spiral.upstream.writing import dump_upstream, upstream_json

__all__ = ["dump_upstream", "load_upstream", "upstream_json"]
