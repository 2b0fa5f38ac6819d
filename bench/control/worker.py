"""A worker, or a hog, as a process of its own; the standard library alone, so that it starts fast.

    python worker.py serve CHANNEL WAIT WORK STEPS NICE CPU
    python worker.py hog SEED NICE CPU

CHANNEL is the number of a socket, CPU -1 for any.
"""

import contextlib
import math
import os
import random
import signal
import socket
import struct
import sys
import time

RECORD = struct.Struct("<qd")  # number, when it was due
DONE = struct.Struct("<qdd")  # number, seconds it took, CPU seconds


def serve(channel: socket.socket, wait: float, work: float, steps: bool) -> None:
    """Take records until the channel ends; acknowledge each when it is done.

    `steps`: wait in short ones, or a worker that is stopped meanwhile would not be slowed by it.
    """
    pending = b""
    while True:
        data = channel.recv(65536)
        if not data:
            return
        pending += data
        whole = len(pending) // RECORD.size * RECORD.size
        for number, _ in RECORD.iter_unpack(pending[:whole]):
            begun, cpu = time.monotonic(), time.thread_time()
            (wait_in_steps if steps else time.sleep)(wait)
            compute(work)
            took = time.monotonic() - begun
            channel.sendall(DONE.pack(number, took, time.thread_time() - cpu))
        pending = pending[whole:]


def wait_in_steps(seconds: float) -> None:
    steps = max(1, round(seconds / 0.0015))
    for _ in range(steps):
        time.sleep(seconds / steps)


def compute(seconds: float) -> None:
    """So much CPU time, however long that takes."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        for value in range(40):
            math.sqrt(value)


def hog(seed: int) -> None:
    """Square roots of random numbers, as in the paper."""
    draw = random.Random(seed).random
    while True:
        math.sqrt(draw())


def settle(nice: int, cpu: int) -> None:
    if cpu >= 0:
        os.sched_setaffinity(0, {cpu})
    with contextlib.suppress(PermissionError):
        os.nice(nice)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.argv[1] == "hog":
        settle(int(sys.argv[3]), int(sys.argv[4]))
        hog(int(sys.argv[2]))
    number, wait, work, steps, nice, cpu = sys.argv[2:]
    settle(int(nice), int(cpu))
    with socket.socket(fileno=int(number)) as channel, contextlib.suppress(ConnectionError):
        serve(channel, float(wait), float(work), steps == "1")


if __name__ == "__main__":
    main()
