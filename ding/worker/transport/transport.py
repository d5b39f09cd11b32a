"""The transports, which carry tasks, samples and weights between the roles of parallel training, and the tasks."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from enum import Enum
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from ding.utils.config_helper import ConfigError
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import COMM_COLLECTOR_REGISTRY, COMM_LEARNER_REGISTRY, TRANSPORT_REGISTRY
from ding.utils.system_helper import DaemonThreads
from ding.worker.transport.stores import FolderPolicyStore, FolderSampleStore, PolicyStore, SampleStore

if TYPE_CHECKING:
    from ding.interaction.base import Page

DEFAULT_TRANSPORT = "flask_fs"
# The modules that register the transports of this package; each is imported on demand.
_MODULES = {
    "flask_fs": "ding.worker.transport.http_transport",
    "local": "ding.worker.transport.local_transport",
    "ray": "ding.worker.transport.ray.ray_transport",
}
# The kinds of workers.
COLLECTOR, LEARNER = "collector", "learner"
_COMM_REGISTRIES = {"learner": COMM_LEARNER_REGISTRY, "collector": COMM_COLLECTOR_REGISTRY}
# The modules that register the comm workers of this package that have types of their own.
_COMM_MODULES = {
    "learner": ["ding.worker.learner.comm.flask_fs_learner", "ding.worker.learner.comm.ray_learner"],
    "collector": ["ding.worker.collector.comm.flask_fs_collector"],
}


class Launch(Enum):
    """The places where a worker may run."""

    PROCESS = "a process of its own"
    THREAD = "a thread of the coordinator's process"
    ACTOR = "an actor of Ray"


class Transport(ABC):
    """A transport, which makes the ends of the connections between coordinator and workers, and their shared stores.

    A class is registered in `TRANSPORT_REGISTRY` under its `name`, which is also a type of comm learners and comm
    collectors; see `create_comm_learner`.

    Attributes:
        name: the name under which it is registered.
        launch: where `parallel_pipeline` runs each worker.
    """

    name: str
    launch = Launch.PROCESS

    @abstractmethod
    def connector(self, cfg: Mapping[str, Any]) -> Connector:
        """Return the coordinator's end.

        Args:
            cfg: `host` and `port` to listen at, and optionally the workers, `learner` and `collector`, each
                `{name: [name, host, port]}`.

        Raises:
            ConfigError: a worker cannot be reached at its address.
        """

    @abstractmethod
    def worker_server(self, serve: Serve, cfg: Mapping[str, Any], on_lost: Callable[[], Any]) -> WorkerServer:
        """Return a worker's end.

        Args:
            serve: runs a task and returns its result.
            cfg: the section of the worker: `host`, `port` (0 for any free one), and optionally `close_timeout_s`.
            on_lost: called when the coordinator is lost or disconnects.
        """

    def sample_store(self, root: str) -> SampleStore:
        """Return the sample store `root`, by default a folder that all roles share."""
        return FolderSampleStore(root)

    def policy_store(self, root: str, trust_pickle: bool = False) -> PolicyStore:
        """Return the policy store `root`, in which the weights of each name are also a file of that name.

        By default it is a folder that all roles share.

        Args:
            trust_pickle: whether to read weights with arbitrary objects, which may run code.
        """
        return FolderPolicyStore(root, trust_pickle)


def transport_name(value: Any) -> str | None:
    """Config rule (see `check_config`): return None if `value` names a transport, else the allowed values."""
    names = {*_MODULES, *TRANSPORT_REGISTRY}
    return None if isinstance(value, str) and value in names else f"one of {', '.join(map(repr, sorted(names)))}"


def get_transport(name: str = DEFAULT_TRANSPORT) -> Transport:
    """Return the transport registered as `name`.

    Raises:
        ConfigError: no transport has this name.
    """
    allowed = transport_name(name)
    if allowed is not None:
        raise ConfigError(f"transport = {name!r} is not allowed; it must be {allowed}")
    if name not in TRANSPORT_REGISTRY:
        import_module([_MODULES[name]])
    transport: Transport = TRANSPORT_REGISTRY.build(name)
    transport.name = name  # a subclass that does not set it has that of its base
    return transport


def import_transport(cfg: Mapping[str, Any]) -> list[str]:
    """Import the `import_names` of `comm_learner` and `comm_collector`, which may register a transport; return them.

    Args:
        cfg: a system or create config.
    """
    names: list[str] = []
    for kind in _COMM_REGISTRIES:
        section = cfg.get(f"comm_{kind}")
        listed = section.get("import_names") or [] if isinstance(section, Mapping) else []
        names += [listed] if isinstance(listed, str) else listed
    import_module(names)
    return list(dict.fromkeys(names))


def choose_transport(system: Mapping[str, Any]) -> Transport:
    """Return the transport of a user's system config.

    `transport` names it, or else the types of `comm_learner` and `comm_collector`, which must agree. Types of
    'flask_fs', as in most configs, are replaced if `transport` names another transport. The `import_names` of these
    sections are imported before, as they may register it.

    Raises:
        ConfigError: the keys contradict each other, or name no transport.
    """
    named = system.get("transport")
    chosen = {f"comm_{kind}.type": transport_of(kind, system.get(f"comm_{kind}", {})) for kind in _COMM_REGISTRIES}
    if named is not None:
        types = {key: name for key, name in chosen.items() if name != DEFAULT_TRANSPORT}
        chosen = {"transport": get_transport(named).name, **types}
    if len(set(chosen.values())) > 1:
        raise ConfigError(
            "all roles of system_config must use the same transport, but "
            + ", ".join(f"{key} is for {name!r}" for key, name in chosen.items())
        )
    return get_transport(next(iter(chosen.values())))


def transport_of(kind: str, section: Mapping[str, Any]) -> str:
    """Return the name of the transport for a comm learner or collector of the type in `section`."""
    import_module(section.get("import_names", []))
    type_name = str(section.get("type", DEFAULT_TRANSPORT))
    if type_name in _MODULES or type_name in TRANSPORT_REGISTRY:
        return type_name
    cls = dict.get(_COMM_REGISTRIES[kind], type_name)  # an unknown type raises an error when the worker is made
    return str(getattr(cls, "transport", None) or DEFAULT_TRANSPORT)


def comm_class(kind: str, section: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the class of the comm learner or collector of the type in `section`, after importing its `import_names`.

    Raises:
        KeyError: no comm worker is registered under that type, and it names no transport.
    """
    import_module([*_COMM_MODULES[kind], *section.get("import_names", [])])
    cls: Callable[..., Any] = _COMM_REGISTRIES[kind].get(section["type"])
    return cls


def connect(
    connector: Connector, name: str, host: str, port: int, timeout_s: float
) -> tuple[WorkerClient, dict[str, Any]]:
    """Connect to the worker at that address, and return its client and its resources.

    Raises:
        WorkerLost: the worker did not answer in time, or refuses.
        TaskFailed: the worker failed to report its resources.
    """
    deadline = monotonic() + timeout_s
    client = connector.client(name, host, port)
    try:
        client.connect(timeout_s)
        return client, client.run({"name": TaskName.RESOURCE}, max(0.1, deadline - monotonic()))
    except BaseException as e:
        client.drop(f"it could not be connected: {e}")  # disconnecting a worker that does not answer would take longer
        raise


# How long after the limit an attempt may still report its own error.
_GRACE_S = 0.5


def connect_all(attempts: Mapping[str, Callable[[], Any]], timeout_s: float) -> None:
    """Make all attempts at the same time, and wait for them at most `timeout_s` seconds.

    Args:
        attempts: functions, by the name of the worker, that connect it within `timeout_s` or raise.

    Raises:
        ConnectionError: attempts have failed; the message names all of them.
    """
    errors = run_all(attempts, timeout_s + _GRACE_S)
    reasons = {name: errors.get(name, "it has not answered") for name in sorted(attempts)}
    failed = [f"{name}: {reason}" for name, reason in reasons.items() if reason is not None]
    if failed:
        raise ConnectionError(f"no connection within {timeout_s:g} s to {'; '.join(failed)}")


def run_all(calls: Mapping[str, Callable[[], Any]], timeout_s: float) -> dict[str, Exception | None]:
    """Run all calls at the same time, in daemon threads, and return the errors of those that end in time, by name."""
    errors: dict[str, Exception | None] = {}
    threads = DaemonThreads()

    def run(name: str, call: Callable[[], Any]) -> None:
        error: Exception | None = None
        try:
            call()
        except Exception as e:  # returned to the caller
            error = e
        errors[name] = error

    for name, call in calls.items():
        threads.start(f"run_{name}", run, name, call)
    threads.join(timeout_s)
    return errors.copy()


Task = Mapping[str, Any]
# Runs a task and returns its result; raises `ding.interaction.TaskFail` to fail it with a given result.
Serve = Callable[[dict[str, Any]], Any]


class TaskFailed(RuntimeError):
    """The error that a worker has failed a task.

    Attributes:
        worker: the name of the worker.
        task: the name of the task.
        result: a dict with `message` and, after an exception, `exception` and `traceback`.
    """

    def __init__(self, worker: str, task: str, result: Mapping[str, Any]) -> None:
        self.worker, self.task, self.result = worker, task, dict(result)
        super().__init__(f"worker {worker} failed the task {task}: {describe(result)}")


class WorkerLost(RuntimeError):
    """The error that a worker cannot be reached, or did not answer in time; whether it ran the task is unknown."""


class WorkerGone(WorkerLost):
    """The error that there is no worker at an address, and that none will appear there by itself."""


class WorkerReleased(WorkerLost):
    """The error that the coordinator had released the worker before the task was lost; it may have been replaced."""


class TaskStalled(WorkerLost):
    """The error of a worker that answers, but whose task makes no progress."""


def error_of(worker: str, task: str, result: Mapping[str, Any]) -> TaskFailed | WorkerLost:
    """Return the error for a failed task; a worker that has lost other ranks of its learner is lost, too."""
    if result.get("exception") == WorkerLost.__name__:
        return WorkerLost(f"worker {worker} is lost with the task {task}: {result.get('message')}")
    return TaskFailed(worker, task, result)


class Answer(Future[Any]):
    """The future answer of a worker; the first outcome counts, from the worker or a caller that gives up."""

    def succeed(self, result: Any) -> None:
        with contextlib.suppress(InvalidStateError):
            self.set_result(result)

    def fail(self, error: BaseException) -> None:
        with contextlib.suppress(InvalidStateError):
            self.set_exception(error)


class WorkerClient:
    """The coordinator's client of one worker. One thread uses it at a time; any thread may close it.

    Args:
        name: the name of the worker.
        in_use: the clients of the connector, which include this one between `connect` and `close`.
    """

    def __init__(self, name: str, in_use: set[WorkerClient]) -> None:
        self.name = name
        self._in_use = in_use

    def connect(self, timeout_s: float) -> None:
        """Wait until the worker has started, and connect to it.

        Raises:
            WorkerLost: the worker did not connect in time, or refuses.
        """
        raise NotImplementedError

    def run(self, task: Task, timeout_s: float) -> dict[str, Any]:
        """Run `task` on the worker and return the result; both may have whatever `pack` accepts.

        Raises:
            TypeError: the task has something else.
            TaskFailed: the worker failed the task.
            WorkerLost: the connection was lost, or the result did not arrive in time.
        """
        raise NotImplementedError

    def watch(self, on_lost: Callable[[str], Any]) -> None:
        """Call `on_lost`, perhaps twice, with the reason when the worker is lost, at once if it is lost already."""

    def drop(self, reason: str) -> None:
        """Close the client without a message to the worker, which has ended or hangs; its task raises `WorkerLost`."""
        raise NotImplementedError

    def silence_s(self) -> float | None:
        """Return the seconds since the last sign of life of the worker; None before the first one, or if unknown."""
        return None

    def close(self) -> None:
        """Disconnect, in bounded time; a running task raises `WorkerLost`. Further calls do nothing."""
        self.drop(f"worker {self.name} was disconnected")


# How long disconnecting may take; a worker that hangs notices later that its coordinator has ended.
CLOSE_S = 3.0


class Connector:
    """The coordinator's side of a transport, which makes the clients of the workers."""

    def __init__(self) -> None:
        self._clients: set[WorkerClient] = set()

    @property
    def url(self) -> str | None:
        """The URL at which it listens after `start`; None if it does not listen."""
        return None

    def serve_page(self, path: str, page: Page) -> None:
        """Answer GET requests at `path` with `page`, if the connector listens; call it before `start`."""

    def start(self) -> None:
        """Start to listen, if workers need an address for their answers."""

    def client(self, name: str, host: str, port: int) -> WorkerClient:
        """Return a client, not connected yet, to the worker at that address."""
        raise NotImplementedError

    def close(self) -> None:
        """Close all clients and stop. Further calls do nothing."""
        clients = self._clients.copy()  # copied in one step: closing removes them
        run_all({str(number): client.close for number, client in enumerate(clients)}, CLOSE_S)


class WorkerServer(Protocol):
    """A worker's side of a transport."""

    @property
    def port(self) -> int:
        """The port at which it accepts tasks, known after `start`."""

    def start(self) -> None:
        """Start to accept tasks."""

    def close(self) -> None:
        """Accept no more tasks. Further calls do nothing."""


def describe(result: Mapping[str, Any]) -> str:
    """Return the result of a failed task as text: the traceback if it has one, else the message."""
    return str(result.get("traceback") or result.get("message") or dict(result))


def result_of(answer: Any) -> dict[str, Any]:
    """Return the answer to a task as a dict."""
    return dict(answer) if isinstance(answer, Mapping) else {"result": answer}


# The key of a collecting task for the number of samples that wait for the coordinator, if it is less than configured.
QUEUE_SIZE = "queue_size"


class TaskName:
    """The names of the tasks, the vocabulary of coordinator and workers."""

    RESOURCE = "resource"
    COLLECTOR_START = "collector_start_task"
    COLLECTOR_DATA = "collector_data_task"
    COLLECTOR_CLOSE = "collector_close_task"
    LEARNER_START = "learner_start_task"
    LEARNER_GET_DATA = "learner_get_data_task"
    LEARNER_LEARN = "learner_learn_task"
    LEARNER_CLOSE = "learner_close_task"


Handler = Callable[[dict[str, Any]], Any]
