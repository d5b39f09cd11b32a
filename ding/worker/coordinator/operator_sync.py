"""Workers that join and leave as an operator says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from time import monotonic
from typing import Any, NamedTuple

from ding.interaction.base.network import literal, split_http_address
from ding.utils.config_helper import check_config, instance_of, integer, number
from ding.worker.coordinator.comm_coordinator import COLLECTOR, LEARNER
from ding.worker.coordinator.operator_server import OperatorServer, Reply, make_operator_server

# After a request that has failed, the next one waits so long.
_RETRY_S = 2.0
_JOIN_S = 2.0


class WorkerId(NamedTuple):
    """A worker of an operator; its name, `host:port`, is where it is."""

    kind: str
    name: str


class _State(Enum):
    JOINING = auto()
    JOINED = auto()
    LEAVING = auto()
    FAILED = auto()


@dataclass(slots=True)
class _Member:
    state: _State = _State.JOINING
    is_listed: bool = True


class OperatorSync:
    """Asks the operator every `period_s` seconds which workers there are, has new ones join, and others leave.

    Each joins and leaves in a thread of its own, so that one that does not answer holds up no other. One that could not
    join, or was lost, is reported to the operator, and tried again as long as it is listed. While the operator fails,
    the workers stay as they are.

    Args:
        kinds: the kinds of workers to look after.
        join: connects a worker, called with kind, name, host and port; raises if that fails.
        leave: lets go of a worker that has joined, called with kind and name.
        logger: a text logger.
        period_s: from one look to the next.
        reports_failures: whether the operator is told of workers that failed.
        on_error: is told what the look-out itself has died of; as long as it has not, there is nothing to tell.
    """

    def __init__(
        self,
        operator: OperatorServer,
        kinds: Sequence[str],
        join: Callable[[str, str, str, int], None],
        leave: Callable[[str, str], None],
        logger: Any,
        period_s: float,
        reports_failures: bool = False,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._operator, self._kinds = operator, kinds
        self._join, self._leave = join, leave
        self._logger, self._period_s = logger, period_s
        self._reports_failures, self._on_error = reports_failures, on_error
        self._members: dict[WorkerId, _Member] = {}
        self._known: set[WorkerId] = set()  # all that were ever listed
        self._changed = threading.Condition()
        self._is_closing = False
        self._trouble = ""  # what the operator, or else a worker, has last failed with
        self._thread = threading.Thread(target=self._run, name="period_sync", daemon=True)
        self._helpers: set[threading.Thread] = set()

    def request_replicas(self, data: Mapping[str, Any], timeout_s: float) -> None:
        """Ask for the workers to begin with; again while the operator is not up yet, or fails.

        Raises:
            ConnectionError: it has not agreed in time, or refuses.
        """
        deadline = monotonic() + timeout_s
        while not self._has_agreed(data):
            if monotonic() + _RETRY_S > deadline or self._wait(_RETRY_S):
                raise ConnectionError(f"the operator has given no replicas within {timeout_s:g} s: {self._trouble}")

    def _has_agreed(self, data: Mapping[str, Any]) -> bool:
        import requests

        try:
            self._checked(self._operator.post_replicas(data))
        except requests.ReadTimeout as e:  # it may have made them all the same: twice as many is not what is wanted
            raise ConnectionError(str(e)) from e
        except requests.RequestException as e:
            if e.response is not None and 400 <= e.response.status_code < 500:
                raise ConnectionError(str(e)) from e
            self._trouble = str(e)
            return False
        return True

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def wait_for(self, has_enough: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait until `has_enough`, which is asked again whenever a worker has joined.

        Raises:
            ConnectionError: it has not come to that in time, or before `close`.
        """
        with self._changed:
            self._changed.wait_for(lambda: has_enough() or self._is_closing, timeout_s)
        if not has_enough():
            trouble = f": {self._trouble}" if self._trouble else ""
            raise ConnectionError(
                f"the operator at {self._operator.url} has not brought {what} within {timeout_s:g} s{trouble}"
            )

    def lost(self, kind: str, name: str) -> bool:
        """A worker is lost: it is reported, unless it leaves anyway; False where it was never one of the operator's."""
        with self._changed:
            worker = WorkerId(kind, name)
            member = self._members.get(worker)
            if member is not None and member.state is not _State.LEAVING:
                member.state = _State.FAILED
            return worker in self._known

    def close(self) -> None:
        """Look no further. Idempotent; bounded in time: what the operator is being asked is not waited for."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
            threads = [self._thread, *self._helpers]
        self._operator.close()
        deadline = monotonic() + _JOIN_S
        for thread in threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - monotonic()))

    def _run(self) -> None:
        try:
            is_well = True
            while not self._is_closing:
                is_well = self._look_and_tell(is_well)
                self._wait(self._period_s)
        except Exception as e:
            self._logger.exception("the workers that the operator lists are not looked at any more")
            if self._on_error is not None and not self._is_closing:
                self._on_error(e)

    def _look_and_tell(self, was_well: bool) -> bool:
        import requests

        try:
            self._look()
        except (requests.RequestException, ValueError) as e:
            self._trouble = str(e)
            if was_well and not self._is_closing:
                self._logger.error("the workers are left as they are: %s", e)
            return False
        if not was_well:
            self._logger.info("the operator at %s answers again", self._operator.url)
        return True

    def _wait(self, timeout_s: float) -> bool:
        """Wait so long; True where `close` was called meanwhile."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closing, timeout_s)

    def _look(self) -> None:
        """Compare what the operator lists with who is there.

        Raises:
            requests.RequestException: the operator fails.
            ValueError: it lists what is no worker.
        """
        self._tell_failures()
        data = self._checked(self._operator.get_replicas())
        listed = {worker: _address(worker.name) for worker in self._listed(data)}
        with self._changed:
            self._known.update(listed)
            for worker in listed.keys() - self._members.keys():
                member = self._members[worker] = _Member()
                self._help(self._do_join, worker, member, *listed[worker])
            for worker, member in self._members.items():
                member.is_listed = worker in listed
                if member.state is _State.JOINED and not member.is_listed:
                    member.state = _State.LEAVING
                    self._help(self._do_leave, worker)

    def _listed(self, data: Any) -> Iterable[WorkerId]:
        for kind in self._kinds:
            names = data.get(f"{kind}s") or () if isinstance(data, Mapping) else None
            if not isinstance(names, (Mapping, list, tuple)) or not all(isinstance(name, str) for name in names):
                raise ValueError(f"the operator at {self._operator.url} lists what are no {kind}s: {str(data)[:200]}")
            for name in names:
                yield WorkerId(kind, name)

    def _tell_failures(self) -> None:
        """Report workers that failed; from then on they may be tried again."""
        with self._changed:
            failed = {worker for worker, member in self._members.items() if member.state is _State.FAILED}
        if failed and self._reports_failures:
            pods = {k: sorted(_pod(worker.name) for worker in failed if worker.kind == k) for k in self._kinds}
            self._checked(self._operator.post_replicas_failed(**{f"{kind}s": names for kind, names in pods.items()}))
        with self._changed:
            for worker in failed:
                self._members.pop(worker, None)

    def _checked(self, reply: Reply) -> Any:
        success, code, message, data = reply
        if not success:
            import requests

            raise requests.RequestException(f"the operator at {self._operator.url} refuses (code {code}): {message}")
        return data

    def _help(self, act: Callable[..., None], worker: WorkerId, *arguments: Any) -> None:
        """Do something in a thread."""

        def run() -> None:
            try:
                act(worker, *arguments)
            finally:
                with self._changed:
                    self._helpers.discard(threading.current_thread())
                    self._changed.notify_all()

        thread = threading.Thread(target=run, name=f"operator_{worker.kind}", daemon=True)
        if not self._is_closing:
            self._helpers.add(thread)
            thread.start()

    def _do_join(self, worker: WorkerId, member: _Member, host: str, port: int) -> None:
        try:
            self._join(worker.kind, worker.name, host, port)
        except Exception as e:
            self._trouble = f"{worker.kind} {worker.name} could not be connected: {e}"
            if not self._is_closing:
                self._logger.error("%s", self._trouble)
            with self._changed:
                member.state = _State.FAILED
            return
        with self._changed:
            if member.state is _State.FAILED:  # lost as soon as it was there
                return
            stays = member.is_listed and not self._is_closing
            member.state = _State.JOINED if stays else _State.LEAVING
        if not stays:
            self._do_leave(worker)

    def _do_leave(self, worker: WorkerId) -> None:
        try:
            self._leave(*worker)
            self._logger.info("%s %s is not listed any more, and has left", *worker)
        except Exception as e:
            self._logger.exception("%s %s could not be let go", *worker)
            if self._on_error is not None:
                self._on_error(e)
        with self._changed:
            self._members.pop(worker, None)


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


def _address(name: str) -> tuple[str, int]:
    """Where a worker is.

    Raises:
        ValueError: the name does not say.
    """
    try:
        host, port, _, path = split_http_address(f"http://{name}", default_port=0)
    except ValueError:
        host, port, path = None, 0, ""
    if not host or not port or path or "@" in name:
        raise ValueError(f"the operator lists {name!r}, which is no worker; it must be host:port")
    return host, port


def _pod(name: str) -> str:
    """The name of a pod: `pod` in `pod.namespace:port`."""
    host = name.rpartition(":")[0] or name
    return host.rpartition(".")[0] or host if literal(host) is None else host
