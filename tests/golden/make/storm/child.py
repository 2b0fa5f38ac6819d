"""A child of ShellBolt that keeps every byte it reads: python child.py FILE."""

import json
import os
import sys
from pathlib import Path

ENTER = b"\nend\n"


def say(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\nend\n")
    sys.stdout.flush()


def answer(message: object) -> None:
    if isinstance(message, list):  # task ids
        return
    if "pidDir" in message:
        (Path("..") / message["pidDir"] / str(os.getpid())).touch()
        say({"pid": os.getpid()})
    elif message["stream"] == "__heartbeat":
        say({"command": "sync"})
    else:
        if message["tuple"][1:2] == ["task ids"]:
            say({"command": "emit", "anchors": [message["id"]], "stream": "s", "tuple": [1]})
        say({"command": "ack", "id": message["id"]})


def main() -> None:
    pending = b""
    with Path(sys.argv[1]).open("wb") as kept:
        while data := os.read(0, 1 << 16):
            kept.write(data)
            kept.flush()
            *whole, pending = (pending + data).split(ENTER)
            for each in whole:
                answer(json.loads(each))


main()
