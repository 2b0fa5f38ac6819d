"""A report as one file of HTML: no network, no build step, nothing to install where it is read.

The page's own script and style are in the file, and its policy (CSP) allows them by their hashes
and nothing else: whatever a key is called, it cannot become code.

Guarantees, each a test of that name in tests/test_report.py:
  escaped   no key, whatever it holds, ends the data or adds an element
  atomic    at the path is the old file or the new one, whole
  bounded   the file is below 3 MB, however many tasks, keys and intervals there are and however
            long their names; what is left out for it, it says
  hidden    with hash_keys no key is in the file
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import json
import os
import secrets
from functools import cache
from pathlib import Path
from typing import Any

from pyroute.report.fitting import smaller
from pyroute.report.model import Report

MOST_BYTES = 3_000_000
"""Of a file, and one more."""
_HERE = Path(__file__).parent

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<noscript>This page draws itself with its own script, which is switched off here.</noscript>
<script type="application/json" id="pyroute-data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def write(report: Report, path: str | Path, *, hash_keys: bool | bytes = False) -> Path:
    """Write a report to a file, whole or not at all.

    Parameters
    ----------
    report
        What `build` made.
    path
        The file; an old one is replaced.
    hash_keys
        True: every key is shown as a name that says nothing of it, and guessing does not help.
        Bytes: the same with these as the salt, so that reports made with one salt have one name for
        one key.
    """
    target = Path(path)
    text = to_html(hidden(report, hash_keys)).encode("utf-8")
    if target.is_dir():
        raise IsADirectoryError(f"path: expected a file, got the directory {target}")
    made = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with made.open("xb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        made.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            made.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(made):
            raise OSError(error.errno, error.strerror, str(target)) from error  # as it was named
        raise
    return target


def hidden(report: Report, hash_keys: bool | bytes) -> Report:
    """The report with its keys as `write` shows them."""
    if hash_keys is False or report.keys_hashed:
        return report
    return report.hashed(None if hash_keys is True else hash_keys)


def to_html(report: Report) -> str:
    """The whole file as text; `ValueError` where nothing can be left out that would make it fit."""
    for one in smaller(report, MOST_BYTES):
        text = page_html(one.title, one.document(), live=False)
        if len(text.encode("utf-8")) < MOST_BYTES:
            return text
    raise ValueError(f"report: expected parts that fit into {MOST_BYTES:,} bytes")


def page_html(title: str, document: dict[str, Any], *, live: bool) -> str:
    """The page around a document; a live one may ask the server it came from."""
    style, script = asset("page.css"), asset("page.js")
    if live:
        script += asset("live.js")
    script += "\npyroute.start();\n"
    allowed = [
        "default-src 'none'",
        f"style-src {_hash(style)}",
        f"script-src {_hash(script)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    if live:
        allowed.append("connect-src 'self'")
    return _PAGE.format(
        policy="; ".join(allowed),
        title=html.escape(f"{title} - pyroute"),
        style=style,
        script=script,
        data=embedded(document),
    )


def embedded(document: Any) -> str:
    """JSON that may stand inside a script element: ASCII, and nothing that HTML would read."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for letter in "<>&'":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


@cache
def asset(name: str) -> str:
    """The text of a file of the page."""
    return (_HERE / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
