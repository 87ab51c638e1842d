"""Times, work and memory of calls of attention: `saccade.profile`."""

from saccade.profiling.record import Profile, Row, profile
from saccade.profiling.tasks import Task

__all__ = ["Profile", "Row", "Task", "profile"]
