"""Links, workers and commanders that do as they are told."""

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from easydict import EasyDict

from ding.interaction.exception import TaskFail
from ding.utils.registry_factory import COMMANDER_REGISTRY
from ding.worker import Coordinator
from ding.worker.coordinator.base_parallel_commander import BaseCommander
from ding.worker.coordinator.scheduler import TaskState
from ding.worker.transport.chunk import to_content, unpack_batches
from ding.worker.transport.local_transport import LocalWorkerServer

LOGGER = logging.getLogger("test_coordinator")
PATIENCE_S = 60.0  # how long a test waits for what must come, on a busy machine too

Row = dict[str, Any]


def rows(chunk: str, count: int, **more: Any) -> list[Row]:
    """Metadata of the samples of a chunk."""
    return [{"data_id": chunk, "data_index": i, "priority": 1.0, **more} for i in range(count)]


def info(is_done: bool = False, **more: Any) -> Row:
    """What a collector tells when an episode has ended."""
    return {"eval_flag": False, "collector_done": is_done, "cur_episode": 1, "cur_sample": 0, "cur_step": 0, **more}


def finish_info(eval_flag: bool = False, **more: Any) -> Row:
    """What a collector reports at its end."""
    averages = dict.fromkeys(("avg_time_per_episode", "avg_time_per_step", "avg_step_per_episode"), 1.0)
    counts = {"real_episode_count": 1, "step_count": 10, "train_iter": 0}
    return {"eval_flag": eval_flag, **counts, **averages, "reward_mean": 0.0, "reward_std": 0.0, **more}


class FakeWorker:
    """A worker of this process. The test takes each message out of `messages`, and may answer it by `answers`.

    Args:
        answers: task name -> function of the task that returns the result, or raises. A task that has none is answered
            with what the next `reply` gives.

    Attributes:
        answers: the same; the test may change them.
    """

    def __init__(self, **answers: Callable[[Row], Any]) -> None:
        self.messages: queue.SimpleQueue[Row] = queue.SimpleQueue()
        self.log: list[str] = []
        self.answers = answers
        self._replies: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.server = LocalWorkerServer(self._serve)
        self.server.start()

    @property
    def port(self) -> int:
        return self.server.port

    def _serve(self, task: Row) -> Any:
        name = task["name"]
        self.log.append(name)
        self.messages.put(task)
        answer = self.answers.get(name)
        result = self._replies.get(timeout=PATIENCE_S) if answer is None else answer(task)
        if isinstance(result, BaseException):
            raise result
        return result

    def expect(self, name: str) -> Row:
        """The next message, which must be of this name."""
        task = self.messages.get(timeout=PATIENCE_S)
        assert task["name"] == name
        return task

    def reply(self, result: Any) -> None:
        """Answer a message; an exception fails it."""
        self._replies.put(result)

    def close(self) -> None:
        self._replies.put(TaskFail(result={"message": "the test is over"}))
        self.server.close(timeout_s=PATIENCE_S)


def batched_collector(**answers: Callable[[Row], Any]) -> FakeWorker:
    """Answers all but `collector_data_task`; `collected` makes the replies to that."""
    own: dict[str, Any] = {
        "resource": lambda task: {"gpu": 1, "cpu": 20},
        "collector_start_task": lambda task: {"message": "collector task has started"},
        "collector_close_task": lambda task: finish_info(),
    }
    return FakeWorker(**{**own, **answers})


def collected(samples: list[Row] = [], infos: list[Row] = []) -> Row:
    """The reply of a collector."""
    return {"samples": to_content(samples), "infos": infos, "error": None, "task_id": "its own", "buffer_id": "own"}


class AutoLearner:
    """A learner that trains batches of two at once, and says that it is done after `iterations` of them.

    Attributes:
        batches: what it was given.
        is_done: set when it was closed after that.
    """

    def __init__(self, iterations: int, at_once: int = 3, batch_size: int = 2, **answers: Any) -> None:
        self.iterations, self.at_once, self.batch_size = iterations, at_once, batch_size
        self.batches: list[list[Row]] = []
        self.tasks: list[Row] = []
        self.closed = threading.Event()
        own: dict[str, Any] = {
            "resource": lambda task: {"gpu": 1},
            "learner_start_task": self._start,
            "learner_get_data_task": self.get_data,
            "learner_learn_task": self._learn,
            "learner_close_task": self._close,
        }
        self.worker = FakeWorker(**{**own, **answers})

    def _start(self, task: Row) -> Row:
        self.tasks.append(task["task_info"])
        self.trained, self.has_told_end = 0, False
        return {"message": "learner task has started"}

    def get_data(self, task: Row) -> Row:
        infos: list[Row] = []
        if self.trained >= self.iterations and not self.has_told_end:
            self.has_told_end = True
            infos = [{"learner_step": self.trained, "priority_info": {}, "learner_done": True}]
        return {**self._demand(), "infos": infos, "batches_done": 0, "task_id": "its own", "buffer_id": "own"}

    def _demand(self, is_asked: bool = True) -> Row:
        left = 0 if self.has_told_end or not is_asked else min(self.at_once, self.iterations - self.trained)
        return {"batch_size": self.batch_size, "cur_learner_iter": self.trained, "batch_num": left}

    def _learn(self, task: Row) -> Row:
        infos = []
        for batch in unpack_batches(task):
            self.batches.append(batch)
            keys = ("replay_unique_id", "replay_buffer_idx")
            is_prioritized = keys[0] in batch[0]
            priority_info = {key: [row[key] for row in batch] for key in keys} if is_prioritized else {}
            if is_prioritized:
                priority_info["priority"] = [3.0] * len(batch)
            infos.append({"learner_step": self.trained, "priority_info": priority_info, "learner_done": False})
            self.trained += 1
        return {**self._demand(is_asked=False), "infos": infos, "batches_done": len(infos)}

    def _close(self, task: Row) -> Row:
        self.closed.set()
        return {"task_id": "its own", "buffer_id": None}

    def close(self) -> None:
        self.worker.close()


@COMMANDER_REGISTRY.register("scripted")
class ScriptedCommander(BaseCommander):
    """Gives the tasks in `collector_tasks` and `learner_tasks`, where the test puts them; keeps what it is told.

    Attributes:
        told: a queue of (method, arguments...).
        useless: collector tasks that are of no use any more.
        results: what `finish_collector_task` returns, by task id; False where there is nothing.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._open_spaces({})
        self.collector_tasks: list[Row] = []
        self.learner_tasks: list[Row] = []
        self.told: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.useless: set[str] = set()
        self.results: dict[str, Any] = {}
        self.is_closed = False

    def get_collector_task(self) -> Row | None:
        return self.collector_tasks.pop(0) if self.collector_tasks else None

    def get_learner_task(self) -> Row | None:
        return self.learner_tasks.pop(0) if self.learner_tasks else None

    def finish_collector_task(self, task_id: str, finished_task: Mapping[str, Any]) -> Any:
        self.told.put(("finish_collector_task", task_id, finished_task))
        result = self.results.get(task_id, False)
        if isinstance(result, BaseException):
            raise result
        return result

    def finish_learner_task(self, task_id: str, finished_task: Mapping[str, Any]) -> str | None:
        self.told.put(("finish_learner_task", task_id, finished_task))
        return finished_task["buffer_id"]

    def notify_fail_collector_task(self, task: Mapping[str, Any]) -> None:
        self.told.put(("notify_fail_collector_task", task["task_id"]))

    def notify_fail_learner_task(self, task: Mapping[str, Any]) -> None:
        self.told.put(("notify_fail_learner_task", task["task_id"]))

    def update_learner_info(self, task_id: str, info: Mapping[str, Any]) -> None:
        self.told.put(("update_learner_info", task_id, info["learner_step"]))

    def update_collector_info(self, task_id: str, info: Mapping[str, Any]) -> None:
        self.told.put(("update_collector_info", task_id, info["cur_step"]))

    def is_collector_task_useless(self, task_id: str) -> bool:
        return task_id in self.useless

    def close(self) -> None:
        self.is_closed = True

    def expect(self, method: str, *arguments: Any) -> tuple[Any, ...]:
        """What it is told next, which must be by this method, with arguments that begin so; infos of collectors are
        passed over unless they are expected."""
        while (told := self.told.get(timeout=PATIENCE_S))[0] == "update_collector_info" != method:
            continue
        assert told[: 1 + len(arguments)] == (method, *arguments)
        return told


def collector_task(task_id: str, buffer_id: str = "buffer", is_eval: bool = False) -> Row:
    return {"task_id": task_id, "buffer_id": buffer_id, "collector_cfg": EasyDict(eval_flag=is_eval)}


def learner_task(task_id: str, buffer_id: str = "buffer", **buffer_cfg: Any) -> Row:
    cfg = {"type": "advanced", "replay_buffer_size": 64, **buffer_cfg}
    return {"task_id": task_id, "policy_id": "policy", "buffer_id": buffer_id, "replay_buffer_cfg": cfg}


def commander_of(coordinator: Coordinator) -> Any:
    """The commander that a test tells what to do."""
    return coordinator._commander


def open_buffer(coordinator: Coordinator, buffer_id: str, **cfg: Any) -> None:
    """Open a buffer without a learner task."""
    coordinator.buffers.open(buffer_id, cfg)


def end_run(coordinator: Coordinator) -> None:
    """End the run by the result of an evaluation, the next that the `ScriptedCommander` is told."""
    coordinator._task_state["last"] = TaskState("last")
    commander_of(coordinator).results["last"] = True
    coordinator.deal_with_collector_finish_task("last", finish_info(True))
    commander_of(coordinator).expect("finish_collector_task", "last")


def start(coordinator: Coordinator, learner_tasks: Sequence[Row] = (), collector_tasks: Sequence[Row] = ()) -> None:
    """Start it with tasks that its `ScriptedCommander` has to give."""
    commander_of(coordinator).learner_tasks += learner_tasks
    commander_of(coordinator).collector_tasks += collector_tasks
    coordinator.start()


def is_eval(task: Row) -> bool:
    """Whether a collector task is an evaluation."""
    return task["collector_cfg"].eval_flag


def finish(commander: BaseCommander, task: Row, **result: Any) -> Any:
    """Report the result of a collector task, as a coordinator does, which counts the steps first."""
    finished = finish_info(is_eval(task), **result)
    if not is_eval(task):
        commander.env_steps.end(task["task_id"], finished["step_count"])
    return commander.finish_collector_task(task["task_id"], finished)


def states_of(coordinator: Coordinator, kind: str) -> list[str]:
    """The states of the workers of this kind, in the order of their names."""
    return [worker.state for worker in coordinator.status().workers if worker.kind == kind]


def main_cfg(commander: str = "scripted", **commander_cfg: Any) -> EasyDict:
    """The parts of a compiled main config that a coordinator and its commanders read."""
    policy = {
        "type": "dqn_command",
        "on_policy": False,
        "cuda": False,
        "collect": {"collector": {"type": "zergling", "print_freq": 5}, "n_sample": 8},
        "learn": {"learner": {"train_iterations": 6}, "batch_size": 2},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 10000},
            "replay_buffer": {"type": "advanced", "replay_buffer_size": 100},
            "commander": {"type": commander, **commander_cfg},
        },
    }
    env = {"type": "some", "manager": {}, "collector_episode_num": 2, "evaluator_episode_num": 3, "stop_value": 9}
    return EasyDict(exp_name="exp", env=env, policy=policy)


def local_cfg(
    learners: Sequence[int], collectors: Sequence[int], commander: str = "scripted", **coordinator: Any
) -> EasyDict:
    """A compiled parallel config for workers at these local ports."""

    def addresses(kind: str, ports: Sequence[int]) -> dict[str, list[Any]]:
        return {f"{kind}{i}": [f"{kind}{i}", "local", port] for i, port in enumerate(ports)}

    own = {"transport": "local", "host": "local", "port": 0, **coordinator}
    workers = {"learner": addresses("learner", learners), "collector": addresses("collector", collectors)}
    return EasyDict(main=main_cfg(commander), system={"coordinator": {**own, **workers}}, seed=0)
