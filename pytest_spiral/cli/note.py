"""One note about a run in a pull request of GitHub or a merge request of GitLab, kept up to date."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from pytest_spiral.cli import tell
from pytest_spiral.errors import ConfigError
from pytest_spiral.report.lines import plain
from pytest_spiral.resources import read_text

_TOKEN = "SPIRAL_NOTE_TOKEN"  # noqa: S105  # a name
_SECONDS = 30.0
# Of 100 notes each: a discussion of more is read by nobody.
_MOST_PAGES = 100


@dataclass(frozen=True)
class _Forge:
    """Where the notes of one request are, and each by its id. method: that changes a note. headers: with the token."""

    notes: str
    note: str
    method: str
    headers: Mapping[str, str] = field(repr=False)


def keep_note(options: argparse.Namespace) -> int:
    """Write the note, or change the one that an earlier run has written."""
    text = read_text(options.file).strip() if options.file.is_file() else ""
    token = os.environ.get(_TOKEN, "").strip()
    forge = _forge(os.environ, token)
    why = "this is no job of a pull or merge request" if forge is None else "" if token else f"{_TOKEN} is not set"
    if forge is None or why or not text:
        return tell(options, {"note": "none"}, [f"{why if text else f'{options.file} has no summary'}: no note"])
    marker = f"<!-- pytest-spiral {plain(options.run_id).replace('--', '- -')} -->"
    known = _known(forge, marker)
    body = {"body": f"{marker}\n{text}\n"}
    if known is None:
        _ask(forge, "POST", forge.notes, body)
        return tell(options, {"note": "created"}, ["wrote a note"])
    _ask(forge, forge.method, forge.note.format(known), body)
    return tell(options, {"note": "updated"}, ["brought the note up to date"])


def _forge(environ: Mapping[str, str], token: str) -> _Forge | None:
    """By the variables that a job has."""
    if (number := environ.get("CI_MERGE_REQUEST_IID", "")).isdigit():
        project = quote(environ.get("CI_PROJECT_ID", ""), safe="")
        notes = f"{environ.get('CI_API_V4_URL', '')}/projects/{project}/merge_requests/{number}/notes"
        return _Forge(notes, f"{notes}/{{}}", "PUT", {"PRIVATE-TOKEN": token})
    if (number := environ.get("SPIRAL_PULL_REQUEST", "")).isdigit():
        repository = environ.get("GITHUB_REPOSITORY", "")
        base = f"{environ.get('GITHUB_API_URL', 'https://api.github.com')}/repos/{repository}/issues"
        headers = {"Authorization": f"Bearer {token}"}
        return _Forge(f"{base}/{number}/comments", f"{base}/comments/{{}}", "PATCH", headers)
    return None


def _known(forge: _Forge, marker: str) -> int | None:
    """The id of the note that begins with the marker, on whatever page it is."""
    for page in range(1, _MOST_PAGES + 1):
        found = _ask(forge, "GET", f"{forge.notes}?per_page=100&page={page}")
        rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
        for row in rows:
            if str(row.get("body", "")).startswith(marker) and isinstance(row.get("id"), int):
                return int(row["id"])
        if not rows:
            break
    return None


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token is for one host."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _ask(forge: _Forge, method: str, url: str, body: Mapping[str, str] | None = None) -> object:
    """The answer of the API as JSON. Raises `ConfigError`, whose message has nothing of the token."""
    if not url.startswith(("https://", "http://")):
        raise ConfigError(f"{url.partition('?')[0]}: no address of an API; run this in a job of GitHub or GitLab")
    data = None if body is None else json.dumps(body).encode()
    headers = {**forge.headers, "Content-Type": "application/json", "User-Agent": "pytest-spiral"}
    shown = f"{method} {url.partition('?')[0]}"
    try:
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310  # checked above
        with urllib.request.build_opener(_Stay).open(request, timeout=_SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        remedy = (
            f"check that the token in {_TOKEN} may write notes here" if error.code in (401, 403, 404) else "try again"
        )
        problem = f"HTTP {error.code}; {remedy}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        # What a refused header holds is the token, so no detail.
        problem = f"{type(error).__name__}: no answer that can be read"
    raise ConfigError(f"{shown}: {problem}")
