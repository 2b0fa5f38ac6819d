"""The reconfiguration protocol, driven: schedules with faults, mutants, all interleavings, TCP."""
