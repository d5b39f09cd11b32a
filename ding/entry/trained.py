"""The use of a trained policy: acting, evaluating, recording videos, and exporting it as one network."""

from __future__ import annotations

import copy
import glob
import io
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property, partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from easydict import EasyDict
from torch import Tensor, nn

from ding.entry.checks import cuda_of
from ding.entry.experiment import Experiment, read_checkpoint
from ding.entry.run_folder import Path, RunFolder
from ding.entry.serial_run import normalize_as_trained
from ding.envs.common.common_function import affine_transform
from ding.envs.common.gym_compat import entries_of, first_choice, has_members, space_kind
from ding.envs.env.gymnasium_env import GymnasiumSource, env_section_of
from ding.envs.env.gymnasium_spaces import action_adapter, bin_values, turn_images
from ding.envs.env_manager.normalization import OBS, Normalization
from ding.model.wrapper.model_wrappers import HiddenStateWrapper
from ding.policy.base_policy import create_policy
from ding.utils.config_helper import ConfigError
from ding.utils.data.nested import is_mapping, leaves, leaves_by_path, map_by_path, map_leaves
from ding.utils.file_helper import atomic_write
from ding.utils.import_helper import optional_module
from ding.worker.collector.actor import SoloActor
from ding.worker.collector.env_round import Batch
from ding.worker.collector.interaction_serial_evaluator import EvalRecord


class EnvInterface(NamedTuple):
    """How an env shows observations to a policy, and takes its actions.

    Attributes:
        spaces: the observation and the action space of the env itself.
        turn: returns observations as the policy takes them, but not normalized.
        is_scaled: whether the actions of the policy, in [-1, 1], are mapped onto the bounds of the space.
        bins: the number of values that each number of a real-valued action is chosen from, or None.
        adapt: returns the action of the env for one of the policy.
    """

    spaces: tuple[Any, Any]
    turn: Callable[[Any], Any]
    is_scaled: bool
    bins: int | None
    adapt: Callable[[Any], Any]


class TrainedPolicy(AbstractContextManager["TrainedPolicy"]):
    """A trained policy that acts as in evaluations or as in collections, with the hidden state of a recurrent policy.

    It normalizes observations as the training did by `env.norm_obs`; those of an env whose own wrappers normalize are
    taken as that env shows them. `load_policy` creates it. If you call `make_env`, use it as a context manager or call
    `close`.

    Args:
        path: the checkpoint that the policy was loaded from.
    """

    def __init__(self, experiment: Experiment, path: str) -> None:
        policy, statistics = experiment.policy("eval", experiment.state(None, path))
        cfg = experiment.cfg
        self.cfg, self.policy, self._experiment = cfg, policy, experiment
        self._actor, self._statistics = SoloActor(policy.eval_mode, float_obs=True, keep_integers=True), statistics
        self._explorer: tuple[SoloActor, Mapping[str, Any]] | None = None
        self._path = path
        self._stack = ExitStack()
        self._actor.reset()
        self.normalization = Normalization(cfg.env if cfg.env.get("type") == "gymnasium" else None)
        self.normalization.adopt(statistics or {}, is_frozen=True)

    @cached_property
    def interface(self) -> EnvInterface:
        """The interface of the training's env, which is made for its spaces."""
        cfg = self.cfg.env
        is_gymnasium, turns = cfg.get("type") == "gymnasium", bool(cfg.get("channels_first"))
        is_simulator = cfg.manager.get("type") == "env_pool" or cfg.manager.get("vector_env")
        if is_gymnasium and (turns or not is_simulator):
            spaces = spaces_of({**cfg, "channels_first": False})
        else:
            with self.make_env() as env:
                spaces = env.observation_space, env.simulator_action_space if is_gymnasium else env.action_space
        if not is_gymnasium:  # its `step` takes what policies return
            return EnvInterface(spaces, _as_it_is, False, None, _as_it_is)
        is_scaled, bins = bool(cfg.get("act_scale", False)), cfg.get("act_bins")
        turn = partial(turn_images, space=spaces[0]) if turns else _as_it_is
        return EnvInterface(spaces, turn, is_scaled, bins, action_adapter(spaces[1], is_scaled, bins))

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """Return the action for one observation.

        Args:
            obs: an observation of the training's env, wrappers included: an array or a dict of arrays; not normalized
                unless a wrapper does so.
            deterministic: whether to act greedily, as in evaluations; otherwise the action is sampled, or explores, as
                in collections at the end of the training.

        Returns:
            The action for the env: an array, or a dict or tuple of arrays.

        Raises:
            ValueError: the network does not take such an observation.
        """
        return self._act([_of_arrays(obs)], deterministic)[0]

    def predict_batch(self, obs: Any, deterministic: bool = True) -> list[Any]:
        """Return the actions for observations of several envs, [B, *obs_shape], or dicts of them; see `predict`."""
        obs = _of_arrays(obs)
        rows = [map_leaves(itemgetter(index), obs) for index in range(len(next(leaves(obs))))]
        return list(self._act(rows, deterministic))

    def _act(self, rows: list[Any], deterministic: bool) -> Sequence[Any]:
        if not deterministic and self._explorer is None:
            # The collect mode with the same network, and what the commander told it last.
            state, model = read_checkpoint(self._path), getattr(self.policy, "_model", None)
            policy: Any = create_policy(self.cfg.policy, model=model, enable_field=["collect", "command"])
            policy.collect_mode.load_state_dict(state)
            explorer = SoloActor(policy.collect_mode, float_obs=True, keep_integers=True)
            explorer.reset()
            progress = {"envstep": state.get("last_step", 0), "learner_step": state.get("last_iter", 0)}
            info = {**progress, "learner_done": True, "priority_info": {}}
            self._explorer = explorer, policy.command_mode.get_setting_collect(info)
        actor, how = (self._actor, {}) if deterministic or self._explorer is None else self._explorer
        env_ids = list(range(len(rows)))
        obs = Batch.copied(env_ids, rows)
        try:
            return actor.act(Batch(env_ids, self.normalization.scaled(obs.node)), how)[1]
        except (RuntimeError, KeyError, TypeError, ValueError) as e:  # of a network that is given other observations
            wanted = self.policy.cfg.model.get("obs_shape")
            shapes = map_leaves(np.shape, rows[0])
            raise ValueError(f"the policy takes observations of the shape {wanted}, not {shapes}: {e}") from e

    def reset(self) -> None:
        """Start new episodes: reset the hidden states of a recurrent policy."""
        self._actor.reset()
        if self._explorer is not None:
            self._explorer[0].reset()

    def make_env(self, seed: int = 0) -> Any:
        """Return a launched manager of one evaluation env, normalized as in the training; `close` closes it."""
        experiment = copy.copy(self._experiment)
        experiment.cfg = copy.deepcopy(self.cfg)
        experiment.cfg.seed, experiment.cfg.env.evaluator_env_num = seed, 1
        env = experiment.build_env(self._stack)
        env.launch()
        normalize_as_trained(env, self._statistics)
        if self._statistics:
            env.reset()  # the observations of `launch` are not normalized
        return env

    def close(self) -> None:
        """Close the envs of `make_env`. Further calls do nothing."""
        self._stack.close()

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def spaces_of(section: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the observation and the action space of the gymnasium env of a config section."""
    env = GymnasiumSource.from_config(section).make()
    try:
        return env.observation_space, env.action_space
    finally:
        env.close()


def _as_it_is(value: Any) -> Any:
    return value


def _of_arrays(obs: Any) -> Any:
    """Return an observation with arrays for lists."""
    if is_mapping(obs):
        return {key: _of_arrays(part) for key, part in obs.items()}
    return np.array(obs) if isinstance(obs, list) else obs


def load_policy(
    exp: Path,
    checkpoint: str | None = None,
    seed: int = 0,
    env: Any = None,
    model: nn.Module | None = None,
    device: Any = None,
) -> TrainedPolicy:
    """Load the policy of a run.

    Args:
        exp: the folder of the run.
        checkpoint: the checkpoint, see `RunFolder.checkpoint`; by default the best.
        seed: the seed of the package.
        env: an env instead of the run's, if the folder could not name that; see `train`.
        model: a network as the one that was passed to the pipeline, if the run had one of its own; it gets the weights.
        device: where to compute, see `train`; by default as in the training, or on the CPU if there is no GPU.

    Raises:
        ConfigError: there is no such device.
        FileNotFoundError: the folder contains no run, or the checkpoint does not exist.
        RuntimeError: the weights are those of another network.

    Example:
        >>> policy = load_policy("cartpole_dqn_seed0")  # doctest: +SKIP
        >>> policy.predict(np.zeros(4, np.float32))  # doctest: +SKIP
        array([1])
    """
    folder = RunFolder(exp)
    experiment = Experiment.from_config(pair_of(folder, env, device), seed, None, model)
    return TrainedPolicy(experiment, folder.checkpoint(checkpoint))


def pair_of(folder: RunFolder, env: Any, device: Any = None) -> tuple[Any, Any]:
    """Return the two configs of a run, with another env or device if one is given; see `load_policy`."""
    main, create = folder.configs()
    if device is not None:
        main.policy.cuda = cuda_of(device)
    if env is not None:
        for key in ("env_id", "env", "kwargs"):
            main.env.pop(key, None)
        main.env.update(env_section_of(env))
        create.env = EasyDict(type="gymnasium")
    return main, create


def evaluate_pair(
    pair: tuple[Any, Any],
    seed: int,
    load_path: Any,
    n_episode: int | None = None,
    replay_path: Any = None,
    model: nn.Module | None = None,
    env_setting: Sequence[Any] | None = None,
) -> EvalRecord:
    """Evaluate like `eval`, but return the record, and keep no logs, which only repeat it; `pair` may be changed.

    Args:
        n_episode: the number of episodes; None for `env.n_evaluator_episode`. At most that many envs are used.
    """
    main = pair[0]
    if n_episode is not None:
        main.env.n_evaluator_episode = n_episode
        main.env.evaluator_env_num = min(n_episode, main.env.get("evaluator_env_num", 1))
    with tempfile.TemporaryDirectory() as main.exp_name:
        experiment = Experiment.from_config(pair, seed, env_setting, model)
        return experiment.evaluate(load_path=load_path, replay_path=replay_path)


def save_videos(
    pair: tuple[Any, Any],
    target: str,
    n_episode: int,
    seed: int,
    load_path: Any,
    model: nn.Module | None = None,
    env_setting: Sequence[Any] | None = None,
) -> tuple[list[str], EvalRecord]:
    """Play episodes in one env, and save a video of each; the configs may be changed.

    Args:
        target: the file, `.mp4` or `.gif`. The files of several episodes are numbered.
        load_path, model, env_setting: see `eval`.

    Returns:
        The paths of the files, and the record of the episodes.

    Raises:
        ValueError: the suffix of `target` is not supported.
        ImportError: a package for rendering or encoding is not installed.
    """
    stem, suffix = os.path.splitext(target)
    if suffix not in (".mp4", ".gif"):
        raise ValueError(f"{target!r} has the suffix {suffix!r}; it must be .mp4 or .gif")
    env = pair[0].env
    env.evaluator_env_num, env.n_evaluator_episode = 1, n_episode  # one env, so that the videos are in order
    with tempfile.TemporaryDirectory() as videos:
        result = evaluate_pair(pair, seed, load_path, replay_path=videos, model=model, env_setting=env_setting)
        recorded = sorted(glob.glob(os.path.join(videos, "*.mp4")), key=os.path.getmtime)
        recorded = recorded[:n_episode]  # the env may have begun a further one
        files = [target if n_episode == 1 else f"{stem}_{i}{suffix}" for i in range(len(recorded))]
        os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
        for source, file in zip(recorded, files, strict=True):
            if suffix == ".mp4":
                shutil.move(source, file)
                continue
            from moviepy import VideoFileClip

            with warnings.catch_warnings(), VideoFileClip(source) as clip:
                warnings.simplefilter("ignore", ResourceWarning)  # the encoder does not close its pipes
                clip.write_gif(file, logger=None)
    return files, result


_TRACED, _CHECKED = 2, 5  # numbers of observations: for tracing, and for the comparison of the result
_INPUT, _OUTPUT = "obs", "action"


class PolicyNetwork(nn.Module):
    """The greedy policy of a run as a network.

    `forward` takes observations [B, *obs_shape], or a dict of them, as the env shows them. It returns the actions
    [B, *action_shape] for the env: indices of discrete actions, and real-valued actions within the bounds of the env.

    Args:
        policy: a policy with an eval mode.
        interface: that of the env.
        normalization: the statistics by which observations are normalized.

    Raises:
        ConfigError: the policy keeps a state from one step to the next, or its actions are not an array.
    """

    def __init__(self, policy: Any, interface: EnvInterface, normalization: Normalization) -> None:
        super().__init__()
        self._turn, self._normalization = interface.turn, normalization
        space, bins = interface.spaces[1], interface.bins
        wrapper, kind = policy._eval_model, space_kind(space)
        while wrapper is not None and not isinstance(wrapper, HiddenStateWrapper):
            wrapper = getattr(wrapper, "_model", None)
        if wrapper is not None:
            raise ConfigError(
                f"{type(policy).__name__} keeps a hidden state from one step to the next, which an exported network "
                "cannot; use load_policy"
            )
        if kind not in ("Box", "Discrete", "MultiDiscrete"):
            raise ConfigError(f"policies with the action space {space} cannot be exported; it must be one array")
        self.network = policy._model
        self._act: Callable[..., dict[str, Any]] = policy._act_eval
        self._shape = [int(size) for size in space.shape]
        self._dtype = torch.from_numpy(np.empty(0, space.dtype)).dtype
        self._is_scaled = interface.is_scaled and kind == "Box" and bins is None  # bins are values of the env
        if self._is_scaled:
            self.low, self.high = nn.Buffer(torch.from_numpy(space.low)), nn.Buffer(torch.from_numpy(space.high))
        self._is_binned = bins is not None
        self._is_shifted = bool(np.any(first_choice(space)))
        if self._is_shifted:
            self.first = nn.Buffer(torch.as_tensor(first_choice(space)))
        if bins is not None:
            self.values = nn.Buffer(torch.from_numpy(bin_values(space, bins)).T.contiguous())  # [D, bins]

    def forward(self, obs: Any) -> Tensor:
        # In float32, with which the policy was trained.
        obs = map_leaves(lambda part: part.float() if part.is_floating_point() else part, self._turn(obs))
        obs = map_by_path(self._normalized, obs, OBS)
        action: Any = self._act(obs, list(range(next(leaves(obs)).shape[0])))["action"]
        if not isinstance(action, Tensor):
            action = torch.stack([head.reshape(-1) for head in action], -1)
        if self._is_binned:
            action = self.values.gather(1, action.reshape(-1, len(self.values)).T).T
        action = action.reshape([-1, *self._shape])
        if self._is_scaled:
            action = affine_transform(action.to(self._dtype), min_val=self.low, max_val=self.high)
        elif self._is_shifted:
            action = action + self.first
        of_space: Tensor = action.to(self._dtype)
        return of_space

    def _normalized(self, name: str, part: Tensor) -> Tensor:
        """Return a part of an observation by the fixed statistics, see `Normalization.scaled`."""
        scale = self._normalization.scale_of(name)
        if scale is None:
            return part
        mean, std, clip = (torch.as_tensor(number, dtype=torch.float64) for number in scale)
        return ((part - mean) / std).clamp(-clip, clip).float()


def export_policy(trained: TrainedPolicy, path: str) -> None:
    """Write the greedy policy to a file that needs nothing of this package; see `Training.export`.

    The result is compared with the policy on observations that the space samples before it is written.

    Raises:
        ConfigError: the policy keeps a state from one step to the next, draws random numbers, or has actions that are
            not an array or observations that are dicts or tuples within a dict.
        ImportError: the package onnx is not installed.
        ValueError: the suffix of `path` is not supported.
    """
    suffix = os.path.splitext(path)[1]
    if suffix not in (".pt", ".onnx"):
        raise ValueError(f"{path!r} is not allowed; its suffix must be .pt or .onnx")
    name, (shown_space, _) = type(trained.policy).__name__, trained.interface.spaces
    if any(has_members(member) for member in (entries_of(shown_space) or {}).values()):
        raise ConfigError(
            f"{name} cannot be exported: its observations are dicts or tuples within a dict; let the env flatten them, "
            "and show the masks of several choices as one array"
        )
    network = PolicyNetwork(trained.policy, trained.interface, trained.normalization)
    network.eval().requires_grad_(False)
    example, others = (_batch(shown_space, size) for size in (_TRACED, _CHECKED))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # warnings of torch about Python values: the comparison finds those that matter
        traced: Any = torch.jit.trace(network, (example,), check_trace=False, strict=False)  # type: ignore[no-untyped-call]
        try:
            is_same = all(torch.equal(traced(others), network(others)) for _ in range(2))
        except RuntimeError:  # the number of observations is fixed in what was traced
            is_same = False
        if not is_same:
            raise ConfigError(
                f"{name} cannot be exported: its network draws random numbers, or depends on the number of observations"
            )
        content = io.BytesIO()
        if suffix == ".pt":
            torch.jit.save(traced, content)
        else:
            _export_onnx(network, example, content)
    with atomic_write(path, "wb") as f:
        f.write(content.getvalue())


def _batch(space: Any, size: int) -> Any:
    """Return a batch of observations that a space samples, as tensors."""
    members = entries_of(space)
    if members is not None:
        return {key: _batch(member, size) for key, member in members.items()}
    return torch.from_numpy(np.stack([space.sample() for _ in range(size)]))


def _export_onnx(network: nn.Module, example: Any, content: io.BytesIO) -> None:
    optional_module("onnx", "exporting to ONNX", extra="export")
    paths = leaves_by_path(example, join=lambda path, key: f"{path}.{key}" if path else str(key))
    names = [path or _INPUT for path, _ in paths]
    axes = {name: {0: "batch"} for name in (*names, _OUTPUT)}
    # A dict as the last argument would be taken for keyword arguments.
    arguments = (example, {}) if isinstance(example, dict) else (example,)
    torch.onnx.export(
        network,
        arguments,
        content,  # type: ignore[arg-type,unused-ignore]
        input_names=names,
        output_names=[_OUTPUT],
        dynamic_axes=axes,
        dynamo=False,
    )
