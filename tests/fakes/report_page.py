"""What a page holds, without a browser."""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path


def page_data(path: Path, pack: str = "data") -> str:
    """One of its packs: the JSON that its script starts with, or the script."""
    page = path.read_text(encoding="utf-8")
    (packed,) = re.findall(rf'id="pack-{pack}">([^<]*)</script>', page)
    return zlib.decompress(base64.b64decode(packed), wbits=-zlib.MAX_WBITS).decode()
