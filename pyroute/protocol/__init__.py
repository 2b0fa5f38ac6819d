"""Online reconfiguration as state machines: routers change and state moves, the stream goes on.

A `Manager` and one `Instance` beside every task exchange messages; whoever owns the sockets carries
them. No machine does I/O, but for the manager's storage, or reads a clock. docs/protocol.md has the
rules, the guarantees and what an engine must give.

>>> import pyroute as pr
>>> chain = Topology.of({"read": 1, "count": 2})  # `read` is a source, `count` has keys
>>> anna = int(pr.keys(["anna"]).ids[0])
>>> routers = {"count": pr.Router(2, {"anna": 0})}
>>> tasks = {t: Instance(t, topology=chain, routers=routers) for t in chain.all_tasks}
>>> old, new = tasks["count", 0], tasks["count", 1]
>>> old.store.put(anna, b"41 times")
>>> plan = {"count": pr.Router(2, {"anna": 1}, version=1)}
>>> manager = Manager(plan, chain, routers=routers, storage=MemoryStorage())
>>> messages = manager.start(now=0.0)
>>> while messages:
...     message = messages.pop(0)
...     machine = manager if message.target == MANAGER else tasks[message.target]
...     messages += machine.receive(message, 0.0)
>>> new.record(anna, b"the 42nd"), new.store.take(anna)
(Apply(key=3940404480344554896, payload=b'the 42nd'), b'41 times')
>>> old.record(anna, b"sent by an old router").target
Task(operator='count', number=1)
"""

from pyroute.protocol.channel import Inbox, Outbox
from pyroute.protocol.codec import decode, encode
from pyroute.protocol.errors import FencedError, ProtocolError
from pyroute.protocol.instance import Instance
from pyroute.protocol.manager import Manager
from pyroute.protocol.messages import (
    Abort,
    Aborted,
    Ack,
    Apply,
    Done,
    Forward,
    Full,
    GetMetrics,
    Hold,
    Message,
    Metrics,
    Migrate,
    Moved,
    Output,
    Probe,
    Propagate,
    Reconfigure,
    Refuse,
    Resume,
    Resumed,
    RouterChange,
    Send,
    Transfer,
)
from pyroute.protocol.storage import FileStorage, MemoryStorage, Storage
from pyroute.protocol.store import MemoryStore, Store
from pyroute.protocol.topology import MANAGER, Task, Topology

__all__ = [
    "MANAGER",
    "Abort",
    "Aborted",
    "Ack",
    "Apply",
    "Done",
    "FencedError",
    "FileStorage",
    "Forward",
    "Full",
    "GetMetrics",
    "Hold",
    "Inbox",
    "Instance",
    "Manager",
    "MemoryStorage",
    "MemoryStore",
    "Message",
    "Metrics",
    "Migrate",
    "Moved",
    "Outbox",
    "Output",
    "Probe",
    "Propagate",
    "ProtocolError",
    "Reconfigure",
    "Refuse",
    "Resume",
    "Resumed",
    "RouterChange",
    "Send",
    "Storage",
    "Store",
    "Task",
    "Topology",
    "Transfer",
    "decode",
    "encode",
]
