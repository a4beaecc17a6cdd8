"""Places in the lines before hosts that want pauses between requests."""

from __future__ import annotations

from engine.clock import Clock, Micros

#: From here on lines are looked through for what is past.
_MANY = 10_000


class Paces:
    """When each host may be visited next by this worker, and by whom."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_at: dict[str, Micros] = {}
        self._turn_at: dict[int, Micros] = {}

    def wait(self, host: str, op_pk: int, delay: Micros) -> Micros:
        """How long the op still has to wait (0 = its turn is now). It keeps its place until its turn."""
        now = self._clock.now()
        turn = self._turn_at.get(op_pk)
        if turn is None:
            turn = max(self._free_at.get(host, 0), now)
            self._free_at[host] = turn + delay
        if turn > now:
            self._turn_at[op_pk] = turn
        else:
            self._turn_at.pop(op_pk, None)
        self._forget(now)
        return max(turn - now, 0)

    def _forget(self, now: Micros) -> None:
        if len(self._free_at) > _MANY:
            self._free_at = {host: at for host, at in self._free_at.items() if at > now}
        if len(self._turn_at) > _MANY:
            self._turn_at = {op_pk: at for op_pk, at in self._turn_at.items() if at > now}
