"""No child at all: it reads as many bytes, and writes as many, as one that routes; the floor."""

import fcntl
import os

from bench.storm.children.clock import Clock

SIZES = {106: 154, 1024: 1072}  # bytes in and out for a tuple, as the router bolt has them
F_SETPIPE_SZ = 1031


def main():
    for pipe in (0, 1):
        fcntl.fcntl(pipe, F_SETPIPE_SZ, 1 << 18)
    rest = b""
    while b"\nend\n" not in rest:
        rest += os.read(0, 1 << 16)
    first = rest.split(b"\nend\n", 1)[1]
    os.write(1, b'{"pid":%d}\nend\n' % os.getpid())
    while first.count(b"\nend\n") < 1:
        first += os.read(0, 1 << 16)
    size = first.index(b"\nend\n") + 5
    more = SIZES[size] / size
    clock, read, written = Clock(), len(first), 0
    buffer = bytearray(1 << 18)
    block = memoryview(bytearray(1 << 20))
    while count := os.readv(0, [buffer]):
        read += count
        due = int(read * more)
        while written < due:
            written += os.write(1, block[: due - written])
    clock.stop(read // size)


if __name__ == "__main__":
    main()
