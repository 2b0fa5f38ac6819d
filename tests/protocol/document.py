"""``python -m tests.protocol.document`` writes both machines' transitions into docs/protocol.md."""

from __future__ import annotations

import re
from pathlib import Path

from pyroute.protocol import instance, manager

PATH = Path(__file__).resolve().parent.parent.parent / "docs" / "protocol.md"


def main() -> None:
    text = PATH.read_text()
    for name, module in (("instance", instance), ("manager", manager)):
        for kind, body in (
            ("table", module.TABLE.markdown()),
            ("diagram", f"```mermaid\n{module.TABLE.mermaid()}\n```"),
        ):
            mark = f"<!-- {name} {kind} -->"
            found = re.compile(f"{mark}\n.*?<!-- end -->", re.DOTALL)
            assert found.search(text), mark
            whole = f"{mark}\n{body}\n<!-- end -->"
            text = found.sub(lambda _, whole=whole: whole, text)
    PATH.write_text(text)


if __name__ == "__main__":
    main()
