"""What can go wrong between machines."""


class ProtocolError(RuntimeError):
    """A peer sent what cannot come in this phase: it, or the channel, is broken."""


class FencedError(RuntimeError):
    """Another manager decided what this one was about to: this one has to stop."""
