"""No test is a matter of time: hypothesis would fail an example that takes 0.2 s, which a busy machine makes of any."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
