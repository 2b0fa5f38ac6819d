"""A RouterBolt: router.py FILE [TARGET]."""

import sys

from pyroute.storm.router_bolt import RouterBolt

RouterBolt(sys.argv[1], key="key", target=sys.argv[2] if len(sys.argv) > 2 else None).run()
