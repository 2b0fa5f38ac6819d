"""Channel: whatever the network does, and whenever an end crashes, all in order and once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyroute.protocol import Inbox, Outbox, ProtocolError

STEPS = ["send", "resend", "take", "take", "take", "commit", "ack", "crash", "die"]


class Pair:
    """Two ends, what is on its way, and what each would be after a crash."""

    def __init__(self, items):
        self.items = items
        self.out, self.into = Outbox(), Inbox()
        self.network, self.acks, self.got = [], [], []
        self.committed, self.saved = (0, []), (0, [])

    def send(self, _):
        if self.out.position < len(self.items):
            self.network.append(self.out.add(self.items[self.out.position]))
            self.saved = (self.out.position, [data for _, data in self.out.frames])

    def resend(self, _):
        self.network += self.out.frames

    def take(self, choose):
        """Any frame that was ever sent, again or not."""
        if self.network:
            taken = self.into.take(*choose(self.network))
            if taken is not None:
                self.got.append(taken)

    def commit(self, _):
        self.committed = (self.into.position, list(self.got))
        self.acks.append(self.into.position)

    def ack(self, choose):
        if self.acks:
            self.out.acknowledged(choose(self.acks))

    def crash(self, _):
        self.into, self.got = Inbox(self.committed[0]), list(self.committed[1])

    def die(self, _):
        self.out = Outbox(*self.saved)


@given(st.data(), st.integers(1, 12))
def test_in_order_and_once(data, n):
    """Frames are lost, doubled and reordered, ends crash to what they committed last."""
    pair = Pair([b"%d" % i for i in range(n)])
    for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=60)):
        getattr(pair, step)(lambda of: data.draw(st.sampled_from(of)))
        assert pair.got == pair.items[: pair.into.position]
    for _ in range(n):
        pair.send(None)
    for frame in pair.out.frames:
        pair.take(lambda _, frame=frame: frame)
    assert pair.got == pair.items
    pair.out.acknowledged(pair.into.position)
    assert pair.out.frames == []


def test_bounds():
    out = Outbox()
    out.add(b"a")
    with pytest.raises(ProtocolError, match="position: expected at most 1, got 2"):
        out.acknowledged(2)
    with pytest.raises(ValueError, match="frames: expected at most 0, got 1 of them"):
        Outbox(0, [b"a"])
    with pytest.raises(ValueError, match="position: expected 0 to"):
        Inbox(-1)
