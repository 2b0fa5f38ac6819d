"""A loop like Storm's own storm.py: a line at a time, the json module, a flush for each message."""

import json
import os
import sys

from bench.storm.children.clock import Clock


def read():
    text = ""
    while True:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        if line == "end\n":
            return json.loads(text)
        text += line


def send(message):
    sys.stdout.write(json.dumps(message))
    sys.stdout.write("\nend\n")
    sys.stdout.flush()


def main():
    table = json.load(open(sys.argv[1]))  # noqa: PTH123, SIM115
    read()
    send({"pid": os.getpid()})
    clock, records = Clock(), 0
    try:
        while True:
            message = read()
            values = message["tuple"]
            task = table.get(values[0]) or 5 + hash(values[0]) % 8
            emit = {"command": "emit", "anchors": [message["id"]], "task": task, "tuple": values}
            send(emit)
            send({"command": "ack", "id": message["id"]})
            records += 1
    except EOFError:
        clock.stop(records)


if __name__ == "__main__":
    main()
