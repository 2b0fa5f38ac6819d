"""As fast as msgspec allows: large reads, the tuple kept raw, large writes.

The key is looked up as the raw bytes before the first comma: nothing is unescaped or decoded.
"""

import json
import os
import sys

import msgspec

from bench.storm.children.clock import Clock


class Message(msgspec.Struct):
    id: str
    stream: str
    tuple: msgspec.Raw


def main():
    table = json.load(open(sys.argv[1]))  # noqa: PTH123, SIM115
    table = {json.dumps(key).encode(): task + (1 << 32) for key, task in table.items()}
    decode = msgspec.json.Decoder(Message).decode
    rest = b""
    while b"\nend\n" not in rest:
        rest += os.read(0, 1 << 16)
    _, rest = rest.split(b"\nend\n", 1)
    os.write(1, b'{"pid":%d}\nend\n' % os.getpid())
    clock, records = Clock(), 0
    find = table.get
    while data := os.read(0, 1 << 20):
        *lines, rest = (rest + data).split(b"\nend\n")
        out = []
        for line in lines:
            message = decode(line)
            raw = bytes(message.tuple)
            key = raw[1 : raw.index(b",")]
            task = find(key) or (1 << 32) + 5 + hash(key) % 8
            number = message.id
            out.append(
                f'{{"command":"emit","anchors":["{number}"],"task":{task},"tuple":'.encode()
                + raw
                + f'}}\nend\n{{"command":"ack","id":"{number}"}}\nend\n'.encode()
            )
        block = b"".join(out)
        view = memoryview(block)
        while view:
            view = view[os.write(1, view) :]
        records += len(lines)
    clock.stop(records)


if __name__ == "__main__":
    main()
