"""Times, work and memory of calls of attention: `saccade.profile`."""

from saccade.profiling.record import Profile, Row, profile

__all__ = ["Profile", "Row", "profile"]
