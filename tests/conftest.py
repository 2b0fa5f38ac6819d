from hypothesis import HealthCheck, settings

from effort import effort

settings.register_profile(
    "pyroute",
    deadline=None,
    max_examples=effort(60),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pyroute")
