"""The workers that an operator brings to a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ding.utils.config_helper import check_config, instance_of, integer, number
from ding.worker.coordinator.operator_server import make_operator_server
from ding.worker.coordinator.operator_sync import OperatorSync
from ding.worker.coordinator.task_run import COLLECTOR, LEARNER

_RULES = {
    "system_addr": instance_of(str, optional=True),
    "api_version": instance_of(str, optional=True),
    "init_replicas_request": instance_of(Mapping),
    "collector_target_num": integer(0),
    "learner_target_num": integer(0),
    "sync_period_s": number(0.01),
}
_PERIOD_S = 1.0


class OperatorWorkers:
    """Asks for the first workers, and has workers join and leave from then on; see `OperatorSync`.

    Args:
        cfg: may have `system_addr` and `api_version`, see `get_operator_server_kwargs`; `init_replicas_request`, what
            to ask for at the start; `collector_target_num` and `learner_target_num` (0), how many must be there before
            the start is over; `sync_period_s` (1.0).
        join, leave, logger, on_error: see `OperatorSync`.

    Raises:
        ConfigError: a value is not allowed, or there is no address.
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        join: Callable[[str, str, str, int], None],
        leave: Callable[[str, str], None],
        logger: Any,
        on_error: Callable[[Exception], None],
    ) -> None:
        check_config(cfg, "operator_server", _RULES)
        self._cfg = cfg
        self._sync = OperatorSync(
            make_operator_server(cfg, "coordinator"),
            (LEARNER, COLLECTOR),
            join,
            leave,
            logger,
            cfg.get("sync_period_s", _PERIOD_S),
            reports_failures=True,
            on_error=on_error,
        )

    def start(self, count: Callable[[str], int], timeout_s: float) -> None:
        """Ask for workers, and wait until there are as many as there should be of both kinds.

        Args:
            count: how many of a kind are connected.
            timeout_s: how long the operator may take for each of the two.

        Raises:
            ConnectionError: the operator refuses, or has not brought them in time.
        """
        request = self._cfg.get("init_replicas_request")
        if request:
            self._sync.request_replicas(request, timeout_s)
        self._sync.start()
        wanted = {kind: int(self._cfg.get(f"{kind}_target_num", 0)) for kind in (LEARNER, COLLECTOR)}
        what = " and ".join(f"{number} {kind}s" for kind, number in wanted.items())
        self._sync.wait_for(lambda: all(count(kind) >= number for kind, number in wanted.items()), what, timeout_s)

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        """A worker is lost: the operator is told, and sees to its number of workers; see `WorkerKeeper`.

        A worker of the config is none of the operator's, and does not come back.
        """
        return self._sync.lost(kind, name)

    def close(self) -> None:
        """Look no further. Idempotent; bounded in time."""
        self._sync.close()
