"""Envs for processes of their own: whatever happens in them is said in advance, by what can be sent to a process."""

import ctypes
import os
import pathlib
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep


def states(manager: Any) -> list[str]:
    """The names of the states of the envs of a manager."""
    return [state.name for state in manager._env_states.values()]


Deed = Callable[["ScriptedEnv"], Any]


class ScriptedEnv(BaseEnv):
    """Observations are [number, episode, step]; an episode has `length` steps; an info holds an array.

    Args:
        number: number of the env.
        deeds: `{(method, k): deed}`: what to do first in the k-th call, from 0, of `make`, `reset`, `step`, `seed`, ...
            What a deed returns, if it is a dict, goes into the info of the step.
        reuse: write every observation, reward and info into the same arrays.
        space: the observation space.
        form: turns the array into the observation.
    """

    reward_space = None

    def __init__(
        self,
        number: int = 0,
        length: int = 3,
        deeds: dict[tuple[str, int], Deed] | None = None,
        reuse: bool = False,
        space: Any = "default",
        form: Callable[[np.ndarray], Any] = np.asarray,
    ) -> None:
        self.number, self.length, self.reuse, self.form = number, length, reuse, form
        self.deeds = deeds or {}
        self.observation_space = Box(-1e9, 1e9, (3,), np.float32) if isinstance(space, str) else space
        self.action_space = Box(0, 9, (1,), np.int64)
        self.calls: dict[str, int] = {}
        self.told: list[Any] = []  # seeds and reset parameters, in order
        self.actions: list[Any] = []
        self.episode, self.count = -1, 0
        self.replay_path: str | None = None
        self._arrays = np.zeros(3, np.float32), np.zeros(1, np.float32), np.zeros(1)
        self._do("make")

    def _do(self, method: str) -> Any:
        call = self.calls[method] = self.calls.get(method, -1) + 1
        deed = self.deeds.get((method, call)) or self.deeds.get((method, -1))
        return deed(self) if deed is not None else None

    def _fill(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if not self.reuse:
            self._arrays = np.zeros(3, np.float32), np.zeros(1, np.float32), np.zeros(1)
        obs, reward, note = self._arrays
        obs[:] = self.number, self.episode, self.count
        reward[:] = note[:] = self.count
        return self._arrays

    def reset(self, **param: Any) -> Any:
        self.told.append(param)
        self._do("reset")
        self.episode, self.count = self.episode + 1, 0
        return self.form(self._fill()[0])

    def step(self, action: Any) -> BaseEnvTimestep:
        said = self._do("step")
        self.actions.append(action)
        self.count += 1
        obs, reward, note = self._fill()
        done = self.count >= self.length
        info = {"note": note, **({"eval_episode_return": float(self.count)} if done else {})}
        if isinstance(said, dict):
            info.update(said)
        return BaseEnvTimestep(self.form(obs), reward, done, info)

    def seed(self, seed: int, *dynamic_seed: bool) -> None:
        self._do("seed")
        self.told.append((seed, *dynamic_seed))

    def close(self) -> None:
        self._do("close")

    def render(self, mode: str) -> str:
        self._do("render")
        return f"{mode} {self.number} {self.episode} {self.count}"

    def enable_save_replay(self, replay_path: str) -> None:
        self.replay_path = replay_path

    def enable_save_figure(self, figure_path: str) -> None:
        self.figure_path = figure_path

    def reward_shaping(self, transitions: list[dict[str, Any]]) -> Any:
        for transition in transitions:
            transition["reward"] = -transition["reward"]
        return self._do("reward_shaping")

    def secret(self) -> None:
        """Not reachable through a manager."""

    @property
    def pid(self) -> int:
        """The process the env is in."""
        return os.getpid()

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the process the env is in."""
        return dict(os.environ)

    def __repr__(self) -> str:
        return f"ScriptedEnv({self.number})"


class Make:
    """A function that makes a `ScriptedEnv`, for any kind of process."""

    def __init__(self, number: int, **kwargs: Any) -> None:
        self.number, self.kwargs = number, kwargs

    def __call__(self) -> ScriptedEnv:
        return ScriptedEnv(self.number, **self.kwargs)


class OddError(Exception):
    """Cannot be made from its arguments alone."""

    def __init__(self, number: int, *, reason: str) -> None:
        super().__init__(f"odd {number}")
        self.number, self.reason = number, reason


class Once:
    """A deed that is done by the first who comes to it, in whatever process; a file remembers."""

    def __init__(self, path: pathlib.Path, deed: Deed, times: int = 1) -> None:
        self.paths, self.deed = [path.with_suffix(f".{i}") for i in range(times)], deed

    def __call__(self, env: ScriptedEnv) -> Any:
        for path in self.paths:
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                continue
            return self.deed(env)
        return None


class Raise:
    """A deed that raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, env: ScriptedEnv) -> None:
        raise self.error


class Wait:
    """A deed that takes its time."""

    def __init__(self, seconds: float = 60) -> None:
        self.seconds = seconds

    def __call__(self, env: ScriptedEnv) -> None:
        time.sleep(self.seconds)


class WaitFor:
    """A deed that waits for a file to appear."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def __call__(self, env: ScriptedEnv) -> None:
        end = time.monotonic() + 30
        while not self.path.exists():
            if time.monotonic() > end:
                raise TimeoutError(f"{self.path} did not appear")
            time.sleep(0.002)


class Touch:
    """A deed that leaves a file with the env's number."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def __call__(self, env: ScriptedEnv) -> None:
        self.path.with_suffix(f".{env.number}").touch()


class Announce:
    """A deed that writes to a named pipe, once it is open for reading, and then takes its time."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def __call__(self, env: ScriptedEnv) -> None:
        self.path.write_text("here")
        time.sleep(60)


class HoldInterpreter(Announce):
    """The same, but as native code that never lets go of the interpreter lock; writes the id of the process."""

    def __call__(self, env: ScriptedEnv) -> None:
        self.path.write_text(str(os.getpid()))
        ctypes.PyDLL(None).sleep(60)


class Die:
    """A deed that ends the process by a signal, or with an exit code."""

    def __init__(self, how: int | signal.Signals) -> None:
        self.how = how

    def __call__(self, env: ScriptedEnv) -> None:
        if isinstance(self.how, signal.Signals):
            os.kill(os.getpid(), self.how)
            time.sleep(60)
        os._exit(self.how)


def raise_odd(env: ScriptedEnv) -> None:
    raise OddError(3, reason="nothing")


def hang_for_good(env: ScriptedEnv) -> None:
    """As native code does: nothing breaks it off."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(60)


def be_abnormal(env: ScriptedEnv) -> dict[str, Any]:
    return {"abnormal": True}


def act(manager: Any, *env_ids: int) -> dict[int, tuple[list[Any], bool]]:
    """Step these envs, or all that are ready, each with its id; returns (observation, done) by env."""
    timesteps = manager.step({env_id: np.array([env_id]) for env_id in env_ids or manager.ready_obs_id})
    return {env_id: (timestep.obs.tolist(), timestep.done) for env_id, timestep in timesteps.items()}


def shown(manager: Any) -> dict[int, list[Any]]:
    """The ready observations as lists."""
    return {env_id: obs.tolist() for env_id, obs in manager.ready_obs.items()}
