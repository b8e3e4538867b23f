"""Hostile input made from good input: what a fuzzer starts from, and how a text or a JSON tree is spoiled."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

__all__ = ["mutate"]

_TOKENS = (
    "null", "true", "NaN", "-Infinity", "1e999", "-0", "1.0", "{}", "[]", "{", "}", "[", "]", '"', "\\", "\\ud800",
    "\\u0000", "\ufeff", "\u2028", "\x00", "\x1b[2J", "```json", "<think>", "\ud83d", "\U0001f600", "__proto__",
    "../../etc/passwd", "=cmd|' /C calc'!A0", ",", ":", ">=", "<=", ".", "baseline", "9" * 400, "[" * 2_000,
    '{"a":' * 500,
)  # fmt: skip
_VALUES: tuple[Callable[[], Any], ...] = (
    lambda: None, lambda: True, lambda: -1, lambda: 0, lambda: 2**70, lambda: 1e308, lambda: 0.5, lambda: "",
    lambda: "x" * 3_000, lambda: "\ud800", lambda: "\x00", list, dict, lambda: [[]] * 300, lambda: {"": {}},
    lambda: ["a", 1, None], lambda: float("nan"), lambda: 10**400,
)  # fmt: skip


def mutate(text: str, rng: random.Random) -> str:
    """A spoiled copy: of its JSON tree where it has one, of its characters otherwise."""
    if rng.random() < 0.6:
        try:
            tree = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            if isinstance(tree, dict | list):
                for _ in range(rng.randint(1, 3)):
                    tree = _spoiled(tree, rng)
                try:
                    return json.dumps(tree, ensure_ascii=rng.random() < 0.5)
                except (RecursionError, ValueError):
                    return text
    for _ in range(rng.randint(1, 4)):
        text = _edited(text, rng)
    return text


def _edited(text: str, rng: random.Random) -> str:
    at = rng.randint(0, len(text))
    upto = min(len(text), at + rng.choice((0, 1, 1, 2, 8, 64)))
    put = rng.choice(
        (rng.choice(_TOKENS), chr(rng.choice((rng.randrange(128), rng.randrange(0x3000)))), text[at:upto] * 2, "")
    )
    return text[:at] + put + text[upto:]


def _spoiled(tree: Any, rng: random.Random) -> Any:
    """The tree with one node replaced, dropped, renamed or doubled."""
    if not isinstance(tree, dict | list) or not tree or rng.random() < 0.05:
        return rng.choice(_VALUES)()
    keys: list[Any] = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key = rng.choice(keys)
    what = rng.random()
    if what < 0.6:
        tree[key] = _spoiled(tree[key], rng)
    elif what < 0.7:
        del tree[key]
    elif what < 0.8:
        tree[key] = rng.choice(_VALUES)()
    elif isinstance(tree, list):
        tree.insert(key, tree[rng.choice(keys)])
    else:
        tree[rng.choice(("", "x", key.upper(), rng.choice(_TOKENS)[:40]))] = tree.pop(key)
    return tree
