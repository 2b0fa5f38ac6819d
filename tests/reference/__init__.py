"""Plain Python twins of the kernels, written from the definitions in csrc/**/*.hpp."""

import base64
import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent.parent / "golden"


def golden(name: str) -> list[dict[str, Any]]:
    """Return the vectors of one golden file."""
    text = (GOLDEN / f"{name}.json").read_text(encoding="utf-8")
    vectors: list[dict[str, Any]] = json.loads(text)["vectors"]
    return vectors


def untyped(value: dict[str, Any]) -> Any:
    """Return a value of a golden file; dates and timestamps as the numbers they count as."""
    match value["t"]:
        case "n":
            return None
        case "s" | "o":
            return value["v"]
        case "b":
            return base64.b64decode(value["v"])
        case _:
            return int(value["v"])
