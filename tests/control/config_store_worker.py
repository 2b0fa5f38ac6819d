"""A process that writes to a config store: ``add URL NAME N`` or ``claim URL NAME N``."""

import sys

from pyroute.control import ConfigStore, StaleVersionError


def add(store, name, n):
    """Append to one list, n times, by compare-and-set."""
    for i in range(n):
        store.update("list", lambda old, i=i: [*(old or []), f"{name}{i}"])


def claim(store, name, n):
    """Try for every version up to n, and print those that were won."""
    for expect in range(n):
        try:
            print(store.put("claims", name, expect))
        except StaleVersionError as error:
            if error.expected <= expect:
                sys.exit(f"{error}: that was not stale")


if __name__ == "__main__":
    what, url, name, n = sys.argv[1:]
    with ConfigStore.open(url, timeout=60.0) as opened:
        {"add": add, "claim": claim}[what](opened, name, int(n))
