"""Storm: what its children and topologies do, measured."""
