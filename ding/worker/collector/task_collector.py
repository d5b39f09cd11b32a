"""Base of collectors that run tasks, and the sending of their samples in chunks, each followed by its metadata."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic, perf_counter, time
from typing import Any

import numpy as np
import numpy.typing as npt
from easydict import EasyDict

from ding.envs.env.base_env import get_vec_env_setting
from ding.envs.env_manager.base_env_manager import BaseEnvManager, create_env_manager
from ding.utils.config_helper import (
    NO_DEFAULT,
    Setting,
    Settings,
    anything,
    boolean,
    check_section,
    instance_of,
    integer,
    number,
)
from ding.utils.data.samples import (
    Column,
    IntArray,
    Items,
    Kind,
    Samples,
    Table,
    concatenate_items,
    map_node,
    node_items,
    pack,
    rows_of,
    table_of,
)
from ding.worker.collector.base_parallel_collector import BaseParallelCollector
from ding.worker.collector.collect_limits import warn_short_fragments
from ding.worker.collector.rollout import RolloutListener
from ding.worker.collector.statistics import MAX_EPISODE_STEPS, StepLimit, TaskEpisodes, episode_return
from ding.worker.collector.trajectory import INF, TrajectoryRecorder
from ding.worker.learner.checkpoint import NORMALIZATION
from ding.worker.transport.chunk import encode_chunk

Row = dict[str, Any]
FloatArray = npt.NDArray[np.float64]


class SampleSender:
    """A sender that puts samples into chunks, and sends each chunk and then the metadata of its samples.

    Args:
        prefix: prefix of the names of the chunks; no other sender may use it.
        send_stepdata: takes the name and the content of a chunk, encoded; its return value, if any, goes into the
            metadata.
        send_metadata: takes the metadata of the samples of a chunk, one dict each, as `Samples`.
        compressor: see `encode_chunk`.
        chunk_size: least number of samples of a chunk; a fragment is never split.
        flush_interval_s: how long a sample may wait for others.

    Attributes:
        sent: number of samples sent.

    Example:
        >>> chunks, rows = {}, []
        >>> sender = SampleSender("env_a", chunks.__setitem__, rows.extend, "lz4", chunk_size=2, flush_interval_s=0.2)
        >>> sender.add([{"obs": 1.0}, {"obs": 2.0}], env_id=3, collect_iter=7)
        >>> if sender.is_due():
        ...     sender.send({"cur_step": 2})
        >>> list(chunks), [(row["data_id"], row["data_index"], row["env_id"], row["policy_iter"]) for row in rows]
        (['env_a_0'], [('env_a_0', 0, 3, 7), ('env_a_0', 1, 3, 7)])
    """

    def __init__(
        self,
        prefix: str,
        send_stepdata: Callable[[str, Any], Any],
        send_metadata: Callable[[Any], Any],
        compressor: str,
        chunk_size: int,
        flush_interval_s: float,
    ) -> None:
        self._prefix = prefix
        self._send_stepdata, self._send_metadata = send_stepdata, send_metadata
        self._compressor = compressor
        self._chunk_size, self._flush_interval_s = chunk_size, flush_interval_s
        self._waiting: list[tuple[Items, Row]] = []  # samples, and the metadata they share
        self._count = 0  # number of samples that wait
        self._oldest_s = 0.0
        self._chunks = 0
        self.sent = 0

    def add(self, samples: Items, env_id: int, collect_iter: int, **more: Any) -> None:
        """Add `samples` to those that wait to be sent.

        Args:
            collect_iter: the iteration of the policy that made them, where a sample does not say so itself.
            more: goes into their metadata; `policy_iter` is the sample's `collect_iter` unless it is given here.
        """
        if not samples:
            return
        if not self._waiting:
            self._oldest_s = monotonic()
        self._waiting.append((samples, {"env_id": env_id, "collect_iter": collect_iter, **more}))
        self._count += len(samples)

    def is_due(self) -> bool:
        """Return whether there are enough samples for a chunk, or one has waited long enough."""
        if self._count >= self._chunk_size:
            return True
        return self._count > 0 and monotonic() - self._oldest_s >= self._flush_interval_s

    def send(self, common: Row) -> None:
        """Send all samples that wait; the entries of `common` go into the metadata of each.

        A sample may state its `priority` (default 1.0) and its `collect_iter`; None counts as not stated.

        Raises:
            TypeError: one of them is neither a number nor None.
        """
        if not self._waiting:
            return
        waiting, self._waiting, self._count = self._waiting, [], 0
        name = f"{self._prefix}_{self._chunks}"
        self._chunks += 1
        common = {**common, "data_id": name, "compressor": self._compressor}
        whole = concatenate_items([samples for samples, _ in waiting])
        reference = self._send_stepdata(name, encode_chunk(whole, self._compressor))
        if reference:
            common["object_ref"] = reference
        metadata = self._metadata(whole, [{**common, **own} for _, own in waiting], [len(part) for part, _ in waiting])
        self._send_metadata(Samples(metadata))

    def _metadata(self, samples: Items, shared: list[Row], sizes: list[int]) -> Table:
        """Return the metadata of samples; the first `sizes[0]` of them share `shared[0]`, and so on."""
        owner = np.repeat(np.arange(len(sizes)), sizes)
        columns = {key: pack([row[key] for row in shared]) for key in shared[0]}
        columns = {key: map_node(lambda column: column.take(owner).compact(), node) for key, node in columns.items()}
        iterations, lengths, priorities = _facts(samples, [row["collect_iter"] for row in shared], owner)
        columns["collect_iter"] = Column(Kind.INT, iterations)
        columns["unroll_len"] = Column(Kind.INT, lengths)
        columns["priority"] = Column(Kind.FLOAT, priorities)
        columns["data_index"] = Column(Kind.INT, np.arange(len(owner)))
        columns["cur_sample"] = Column(Kind.INT, np.arange(len(owner)) + (self.sent + 1))
        columns.setdefault("policy_iter", columns["collect_iter"])
        self.sent += len(owner)
        return Table(columns)


Facts = tuple[IntArray, IntArray, FloatArray]


def _facts(samples: Items, iterations: list[Any], owner: IntArray) -> Facts:
    """Return iterations, lengths and priorities of samples; `iterations[owner[i]]` where sample i has no iteration."""
    table = table_of(samples)
    if table is None:
        return _facts_of_items(rows_of(samples), iterations, owner)
    held = {key: table.columns[key] for key in ("collect_iter", "priority") if key in table.columns}
    if any(not isinstance(column, Column) or column.kind is Kind.OBJECT for column in held.values()):
        items = [dict(zip(held, item, strict=True)) for item in zip(*map(node_items, held.values()), strict=True)]
        return _facts_of_items(items, iterations, owner)
    size = len(owner)
    values = {key: column.values().reshape(size, -1) for key, column in held.items()}
    own = values["collect_iter"] if "collect_iter" in held else np.array(iterations)[owner, None]
    length = held["collect_iter"].values().shape[1] if "collect_iter" in held and held["collect_iter"].steps else 1
    priorities = values["priority"][:, 0] if "priority" in held else np.ones(size)
    return own[:, 0].astype(np.int64), np.full(size, length), priorities.astype(np.float64)


def _facts_of_items(items: Sequence[Any], iterations: list[Any], owner: IntArray) -> Facts:
    facts = []
    for item, place in zip(items, owner.tolist(), strict=True):
        # A dict, of lists for several steps; a list of dicts; or something else.
        first = item[0] if isinstance(item, list) and item else item
        first = first if isinstance(first, Mapping) else {}
        priority, steps = first.get("priority"), first.get("collect_iter")
        of_steps = item if isinstance(item, list) else steps
        length = len(of_steps) if isinstance(of_steps, list) else 1
        try:
            iteration = iterations[place] if steps is None else int(np.ravel(steps)[0])
            facts.append((iteration, length, 1.0 if priority is None else float(np.ravel(priority)[0])))
        except (TypeError, ValueError, IndexError) as e:
            raise TypeError(
                f"a sample says collect_iter = {steps!r:.200} and priority = {priority!r:.200}; each must be a number, "
                "or None if it says nothing"
            ) from e
    of_all, lengths, priorities = zip(*facts, strict=True)
    return np.array(of_all, np.int64), np.array(lengths, np.int64), np.array(priorities, np.float64)


State = dict[str, Any]
# Seconds between two attempts to get the first weights, without which there is nothing to do.
_FIRST_LOOK_S = 0.05


def _compressor_of_samples(value: Any) -> str | None:
    is_fit = isinstance(value, str) and value in ("lz4", "zlib", "none")
    return None if is_fit else "'lz4', 'zlib' or 'none'; 'jpeg' is for single images, not for whole samples"


def trajectory_length(policy: Any) -> float:
    """Return the transitions of a fragment, by the settings of the policy; infinity for whole episodes.

    Raises:
        AssertionError: the policy does not say how much to collect.
    """
    n_sample, n_episode = (policy.get_attribute(name) for name in ("n_sample", "n_episode"))
    if n_sample is None and n_episode is None:
        raise AssertionError("the policy gives neither n_sample nor n_episode; set one of them in policy.collect")
    if n_episode is not None:
        return INF
    warn_short_fragments(policy.get_attribute("cfg"), n_sample, n_sample, env_num=1)  # each env has its own fragments
    return n_sample  # type: ignore[no-any-return]


class PolicyWatch:
    """A thread that fetches newer weights every `interval_s` seconds, and whenever `look` is called.

    Args:
        fetch: returns the newest weights, or None if they are those that it returned last; raises `FileNotFoundError`
            while there are none.
    """

    def __init__(self, fetch: Callable[[], State | None], interval_s: float) -> None:
        self._fetch = fetch
        self._interval_s = interval_s
        self._newest: State | None = None
        self._error: Exception | None = None
        self._closed, self._wake = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def first(self, timeout_s: float) -> State | None:
        """Wait for the first weights and return them; None if `close` is called.

        Raises:
            TimeoutError: there are none in time.
        """
        deadline = monotonic() + timeout_s
        while not self._closed.is_set():
            reason = "there is nothing new"
            try:
                state = self._fetch()
            except FileNotFoundError as e:
                state, reason = None, str(e)
            if state is not None:
                return state
            if monotonic() > deadline:
                raise TimeoutError(f"no weights have come within {timeout_s:g} s: {reason}")
            self._closed.wait(_FIRST_LOOK_S)
        return None

    def start(self) -> None:
        """Begin to fetch newer weights, in a thread."""
        with self._lock:
            if not self._closed.is_set() and self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="update_policy", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        while True:
            self._wake.wait(self._interval_s)
            if self._closed.is_set():
                return
            self._wake.clear()
            try:
                state = self._fetch()
            except FileNotFoundError:
                continue  # the learner has ended and its weights have gone: those we have are the newest
            except Exception as e:  # `take` raises it in the thread of the collector
                with self._lock:
                    self._error = e
                return
            if state is not None:
                with self._lock:
                    self._newest = state

    def look(self) -> None:
        """Have the thread fetch newer weights now."""
        self._wake.set()

    def take(self) -> State | None:
        """Return the newest weights that have come since the last call.

        Raises:
            Exception: `fetch` has raised it.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            state, self._newest = self._newest, None
        return state

    def close(self, timeout_s: float = 10.0) -> None:
        """End the wait for the first weights, and the thread. Further calls do nothing."""
        self._closed.set()
        self._wake.set()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)


class TaskCollector(BaseParallelCollector):
    """Base of collectors that send samples in chunks (see `SampleSender`) and infos when episodes have ended.

    The info with `collector_done` is the last that is sent. New weights are loaded between two rounds; an evaluation
    keeps those it began with.

    There is one policy or, if `_by_player` is true, one for each player: `policy` and the entries of the config about
    policies are then lists. A subclass defines in `_policy_inference` how the policies act.
    """

    settings = Settings(
        {
            "print_freq": Setting(5, integer(1), "Number of rounds between two log lines about their duration."),
            "compressor": Setting("lz4", _compressor_of_samples, "Compressor of the samples."),
            "update_policy_second": Setting(
                3, number(0), "Most seconds between two checks for new weights; one also follows each chunk of samples."
            ),
            "chunk_size": Setting(64, integer(1), "Number of waiting samples at which they are sent."),
            "flush_interval_s": Setting(0.2, number(0), "Seconds after which fewer samples are sent, too."),
            "first_policy_timeout_s": Setting(120, number(0), "Seconds to wait for the first weights of a policy."),
            "max_episode_steps": Setting(
                NO_DEFAULT,
                integer(1, optional=True),
                "Number of steps within which an episode of an evaluation must end.",
            ),
            "eval_flag": Setting(NO_DEFAULT, boolean, "Whether the task is an evaluation; set by the commander."),
            "exp_name": Setting(NO_DEFAULT, instance_of(str), "Folder of the run; set by the commander."),
            "log_name": Setting(NO_DEFAULT, instance_of(str, optional=True), "Name of the logs; set by the worker."),
            "seed": Setting(NO_DEFAULT, integer(0, optional=True), "Seed of the task; set by the worker."),
            "collect_setting": Setting(
                NO_DEFAULT, instance_of(Mapping, optional=True), "Arguments of the policy; set by the commander."
            ),
            "collector_num": Setting(NO_DEFAULT, None, "Number of collectors."),
            "env": Setting(NO_DEFAULT, anything, "Settings of the env; set by the commander."),
            "policy": Setting(NO_DEFAULT, anything, "Settings of the policy; set by the commander."),
            "policy_update_path": Setting(NO_DEFAULT, anything, "Path of the weights; set by the commander."),
        }
    )
    # Returns the return of an episode from the info of its last step and the env's id.
    _return_of: Callable[[Any, int], float] = staticmethod(episode_return)
    _trajectory_length: Callable[[Any], float] = staticmethod(trajectory_length)
    _by_player = False
    _learning: Sequence[bool] = (True,)  # whether each policy learns

    def __init__(self, cfg: EasyDict) -> None:
        cfg = EasyDict({**TaskCollector.config, **self.config, **cfg})
        self._check(cfg)
        super().__init__(cfg)
        self._episodes = TaskEpisodes(self._return_of)
        self._sender: SampleSender | None = None
        self._start_s: float | None = None
        self._has_told_end = False
        self._policy_paths = self._of_policies(cfg.get("policy_update_path"))
        self._policy_iters = [0] * len(self._policy_paths)
        self._recorders: dict[int, TrajectoryRecorder] = {}  # the recorders of the policies that learn
        # By path of weights, whether newer ones are fetched while this collector plays; None is no path.
        self._watched: dict[Any, bool] = {}
        for path, learns in zip(self._policy_paths, self._learning, strict=True):
            if path is not None:
                self._watched[path] = self._watched.get(path, False) or (learns and not cfg.eval_flag)
        self._watches = {
            path: PolicyWatch(partial(self._fetch, path), cfg.update_policy_second) for path in self._watched
        }
        self._forward_kwargs = {} if cfg.eval_flag else dict(cfg.get("collect_setting") or {})
        try:
            env_cfg = copy.deepcopy(cfg.env)
            env_fn, *env_cfgs = get_vec_env_setting(env_cfg, collect=not cfg.eval_flag, eval_=cfg.eval_flag)
            chosen: Any = env_cfgs[1] if cfg.eval_flag else env_cfgs[0]
            manager = create_env_manager(env_cfg.manager, [partial(env_fn, cfg=c) for c in chosen])
            if cfg.get("seed") is not None:
                manager.seed(int(cfg.seed))
            self.env_manager = manager
            from ding.policy.base_policy import create_policy  # here: importing the workers loads no policies

            field = "eval" if cfg.eval_flag else "collect"
            policies = [create_policy(own, enable_field=[field]) for own in self._of_policies(cfg.policy)]
            modes = [getattr(policy, f"{field}_mode") for policy in policies]
            self.policy = modes if self._by_player else modes[0]
        except BaseException:
            self.close()
            raise

    def _check(self, cfg: EasyDict) -> None:
        """Check the config, before anything is built."""
        check_section(cfg, type(self), required=("eval_flag", "exp_name", "env", "policy"))
        if not cfg.eval_flag:
            encode_chunk([{}], cfg.compressor)  # its package is needed

    def _of_policies(self, value: Any) -> list[Any]:
        """Return a list of what `value`, such as `policy`, holds for each policy."""
        return list(value) if self._by_player else [value]

    def _read_policy(self, policy: Any) -> None:
        if not self._eval_flag:
            policies = zip(self._of_policies(policy), self._learning, strict=True)
            self._traj_lens = [self._trajectory_length(policy) if learns else None for policy, learns in policies]

    @property
    def env_manager(self) -> Any:
        """The env manager; setting it launches the new one and closes the old one."""
        return self._env_manager

    @env_manager.setter
    def env_manager(self, _env_manager: Any) -> None:
        replaced, self._env_manager = self._env_manager, _env_manager
        if replaced is not None:
            replaced.close()
        _env_manager.launch()
        self._env_num = _env_manager.env_num
        self._predefined_episode_count = self._env_num * _env_manager._episode_num

    def _fetch(self, path: Any) -> dict[str, Any] | None:
        return self.get_policy_update_info(path)

    def _load(self, path: Any, state: State) -> None:
        """Load the weights of `path` into its policies, between two rounds; one that does not learn loads them once."""
        is_first = self._start_s is None
        if NORMALIZATION in state and isinstance(self._env_manager, BaseEnvManager):
            self._env_manager.load_normalization(state[NORMALIZATION], is_frozen=self._eval_flag)
            if is_first:
                self._env_manager.reset()  # what `launch` has shown is not normalized
        for player, policy in enumerate(self._of_policies(self._policy)):
            if self._policy_paths[player] != path or not (is_first or self._learning[player]):
                continue
            weights = {key: value for key, value in state.items() if key != NORMALIZATION}
            iteration = int(weights.pop("iter"))
            policy.load_state_dict(weights)
            self._policy_iters[player] = iteration
            if player in self._recorders:
                self._recorders[player].collect_iter = iteration
            who = f"player {player} " if self._by_player else ""
            self.debug(f"{who}acts with the weights of iteration {iteration}")

    def _update_policy(self) -> None:
        """Wait for the first weights.

        Raises:
            TimeoutError: they have not come in time.
        """
        for path, watch in self._watches.items():
            state = watch.first(self._cfg.first_policy_timeout_s)
            if state is not None:
                self._load(path, state)

    def _start_thread(self) -> None:
        for path, is_watched in self._watched.items():
            if is_watched:
                self._watches[path].start()

    def _join_thread(self) -> None:
        for watch in self._watches.values():
            watch.close()

    def _iter_after_hook(self) -> None:
        super()._iter_after_hook()
        for path, watch in self._watches.items():
            state = watch.take()
            if state is not None:
                self._load(path, state)

    def _trajectory_recorder(self, player: int, *args: Any, **kwargs: Any) -> TrajectoryRecorder:
        """Return the recorder of a player's trajectories, built from the arguments of a `TrajectoryRecorder`."""
        return TrajectoryRecorder(*args, **kwargs)

    def _add(self, player: int, env_id: int, samples: list[Any]) -> None:
        assert self._sender is not None
        own = {"player": player, "policy_iter": list(self._policy_iters)} if self._by_player else {}
        self._sender.add(samples, env_id, self._policy_iters[player], **own)

    def _listeners(self) -> Sequence[RolloutListener]:
        if self._eval_flag:
            return [self._episodes, StepLimit(self._cfg.get("max_episode_steps", MAX_EPISODE_STEPS))]
        self._sender = SampleSender(
            f"env_{self._collector_uid}",
            self.send_stepdata,
            self.send_metadata,
            self._cfg.compressor,
            self._cfg.chunk_size,
            self._cfg.flush_interval_s,
        )
        for player, policy in enumerate(self._of_policies(self._policy)):
            length = self._traj_lens[player]
            if length is not None:
                add = partial(self._add, player)
                self._recorders[player] = self._trajectory_recorder(
                    player, policy, self._env_num, length, on_samples=add
                )
                self._recorders[player].collect_iter = self._policy_iters[player]
        return [*self._recorders.values(), self._episodes]

    def _play(self) -> None:
        self._start_s = perf_counter()
        self._take_normalization()
        super()._play()
        if not (self._has_told_end or self._stopping.is_set()):  # there was nothing to play
            self._tell()

    def _reset_policy(self, env_ids: Sequence[int] | None) -> None:
        for policy in self._of_policies(self._policy):
            policy.reset(env_ids)

    def _env_step(self, actions: Any) -> Any:
        return self._env_manager.step(actions)

    def _process_timestep(self, timestep: Any) -> None:
        """Send the data that is due after a round."""
        sender = self._sender
        if sender is not None and (sender.is_due() or self._env_manager.done):
            sender.send({"get_data_time": time(), **self.progress()})
            for watch in self._watches.values():
                watch.look()  # samples are what the learner makes new weights of
        if self._episodes.take_news():
            self._tell()

    def _tell(self) -> None:
        self._has_told_end = bool(self._env_manager.done)
        info = {"get_info_time": time(), "collector_done": self._has_told_end, **self.progress()}
        self.send_metadata({**info, **self._take_normalization()})

    def _take_normalization(self) -> dict[str, Any]:
        """Return what an info says of the statistics that the envs have gathered since the last one."""
        if self._eval_flag or not isinstance(self._env_manager, BaseEnvManager):
            return {}
        gathered = self._env_manager.take_normalization()
        return {NORMALIZATION: gathered} if gathered else {}

    def progress(self) -> dict[str, Any]:
        return {
            "eval_flag": self._eval_flag,
            "cur_episode": self._episodes.count,
            "cur_sample": self._sent,
            "cur_step": self._episodes.steps,
        }

    @property
    def _sent(self) -> int:
        return 0 if self._sender is None else self._sender.sent

    def get_finish_info(self) -> dict[str, Any]:
        """Return the message at the end of the task: counts of episodes and steps, zeros before the first, and more."""
        duration = 0.0 if self._start_s is None else perf_counter() - self._start_s
        learner = self._learning.index(True) if True in self._learning else 0
        info = {
            "eval_flag": self._eval_flag,
            "env_num": self._env_num,
            "duration": duration,
            "train_iter": self._policy_iters[learner],
            "collector_done": self._has_told_end,
            "predefined_episode_count": self._predefined_episode_count,
            **self._episodes.summary(duration, self._sent),
            **self._results(),
            "finish_time": time(),
        }
        if not self._eval_flag:
            info["collect_setting"] = self._cfg.get("collect_setting")
        self.info(f"finish info: {info}")
        return info

    def _results(self) -> dict[str, Any]:
        """Return further entries of the finish info about episodes, besides their summary."""
        return {}

    def close(self) -> None:
        """End a running `start` after its present round, and close the envs, in bounded time.

        Further calls do nothing.
        """
        if self._end_flag:
            return
        super().close()
        if self._env_manager is not None:
            self._env_manager.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._collector_uid})"
