"""One self-contained HTML file: data, the script that displays it, and the style.

The Content-Security-Policy allows scripts and style by hash and forbids everything else, the network included. Data
and the script that displays it reach the page compressed as base64, which can hold no markup; the script turns data
into text nodes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from string import Template

from pytest_spiral.strict_json import json_pieces

Assets = tuple[str, ...]
_RAW = -zlib.MAX_WBITS  # deflate without a header
# Twice as many save less than 1 % more, and have to be unpacked with every pack.
_HEAD_CHARS = 16_000
REPORT_ASSETS: Assets = (
    *("style.css", "dom.js", "format.js", "data.js", "charts.js", "parts.js", "overview.js", "tempaffect.js"),
    *("items.js", "spiral.js", "conversations.js", "compare.js", "run.js", "leaderboard.js", "main.js"),
)
LABEL_ASSETS: Assets = ("style.css", "label.css", "dom.js", "label.js")


def html_page(
    title: str,
    data: Mapping[str, object],
    packs: Mapping[str, Callable[[], object]],
    assets: Assets = REPORT_ASSETS,
    without: str = "The same results are in summary.md and report.json next to it.",
) -> Iterator[str]:
    """A whole page, bit by bit: that of a large suite has 60 MB.

    Args:
        title: Its title, any text.
        data: JSON that the script starts with, in which an iterator stands for a list.
        packs: What the script unpacks on request: makers of JSON values, by name.
        assets: Names of its style sheets and scripts.
        without: What to do where scripts are disabled.
    """
    loader, script, style = f"\n{_asset('load.js')}", _script(assets), _style(assets)
    shown = "".join(character if character.isprintable() else " " for character in title)
    policy = (
        f"default-src 'none'; script-src {_hash(loader)} {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    parts = {"title": html.escape(shown), "policy": html.escape(policy), "style": style, "without": without}
    yield Template(_asset("head.html")).substitute(parts)
    # Down to the rows of single results.
    yield from _pack("data", json_pieces(data, _json, levels=5), zlib.compressobj(wbits=_RAW))
    # Packs are alike and read alone: each is compressed as if the beginning of the first one stood before it.
    packer = zlib.compressobj(wbits=_RAW)
    for make in [*packs.values()][:1]:
        yield from _pack("head", [_json(make())[:_HEAD_CHARS], "\n"], packer, zlib.Z_SYNC_FLUSH)
    for name, make in packs.items():
        yield from _pack(name, [_json(make())], packer.copy())
    yield _packed_script(assets)
    yield f"<script>{loader}</script>\n</body>\n</html>\n"


@cache
def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


@cache
def _style(assets: Assets) -> str:
    return "\n".join(_asset(name) for name in assets if name.endswith(".css"))


@cache
def _script(assets: Assets) -> str:
    body = "\n".join(_asset(name) for name in assets if name.endswith(".js"))
    return f'"use strict";\n(() => {{\n{body}\n}})();\n'


@cache
def _packed_script(assets: Assets) -> str:
    return "".join(_pack("code", [_script(assets)], zlib.compressobj(wbits=_RAW)))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _pack(name: str, pieces: Iterable[str], packer: zlib._Compress, end: int = zlib.Z_FINISH) -> Iterator[str]:
    """A block of text as raw deflate in base64, which browsers undo by `atob` and `DecompressionStream`."""
    yield f'<script type="text/plain" id="pack-{name}">'
    rest = b""
    for piece in pieces:
        rest += packer.compress(piece.encode())
        whole = len(rest) - len(rest) % 3
        yield base64.b64encode(rest[:whole]).decode()
        rest = rest[whole:]
    yield f"{base64.b64encode(rest + packer.flush(end)).decode()}</script>\n"
