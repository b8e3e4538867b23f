"""What a page holds, without a browser."""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path


def page_data(page: Path | str, pack: str = "data") -> str:
    """One of its packs: the JSON that its script starts with, the script, or what the script unpacks on request."""
    text = page if isinstance(page, str) else page.read_text(encoding="utf-8")
    names = (pack,) if pack in ("data", "code") else ("head", pack)
    packed = [re.findall(rf'id="pack-{name}">([^<]*)</script>', text) for name in names]
    whole = b"".join(base64.b64decode(found) for (found,) in packed)
    return zlib.decompress(whole, wbits=-zlib.MAX_WBITS).decode().split("\n", len(names) - 1)[-1]
