"""`fetch-model`: download a small local model."""

from __future__ import annotations

import argparse

from pytest_spiral.cli.output import Subparsers, add_command, print_json
from pytest_spiral.models.local_file import fetch


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(subparsers, "fetch-model", run, "download a small local model, checked against its SHA-256")
    parser.add_argument("name", help="local/NAME, such as local/smollm2-135m")


def run(options: argparse.Namespace) -> int:
    """Download the model and print its path."""
    path = fetch(options.name)
    print_json({"path": str(path)}) if options.json else print(path)
    return 0
