"""Envs of several players, and asynchronous managers, whose outcome can be told in advance."""

from collections.abc import Callable
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.utils.batch_methods import plain_transition
from tests.fakes import FakeManager, ScriptedPolicy, Timestep

FORMATS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda rows: rows.copy(),
    "list": lambda rows: [row.copy() for row in rows],
    "tuple": lambda rows: tuple(row.copy() for row in rows),
    "dicts": lambda rows: [{"where": row[:2].copy(), "when": row[2:].copy()} for row in rows],
    "keyed": lambda rows: {player: row.copy() for player, row in enumerate(rows)},
}


def whole(obs: Any) -> list[int]:
    """[env id, player, episode, step] of an observation in any of the formats, also as tensors."""
    if isinstance(obs, dict):
        return [int(x) for part in (obs["where"], obs["when"]) for x in part]
    return [int(x) for x in obs]


def step_of(row: Any) -> tuple[int, ...]:
    """(env, episode, step acted on, step arrived at) of a sample of a `CountingEnv`."""
    env_id, episode, step = (int(x) for x in row["obs"])
    assert [env_id, episode] == [int(x) for x in row["next_obs"][:2]]
    return env_id, episode, step, int(row["next_obs"][2])


def key(row: Any) -> tuple[int, ...]:
    """(env, player, episode, step acted on) of a transition."""
    env_id, player, episode, step = whole(row["obs"])
    assert [env_id, player, episode, step + 1] == whole(row["next_obs"])
    assert row["reward"].tolist() == [player + 1]
    return env_id, player, episode, step


class BattleEnv:
    """Player p sees [env id, p, episode, step]; it gets the reward p + 1 a step, and `p * 10 + length` in all.

    Args:
        form: of the observations, a key of `FORMATS`.
        reuse: return the same array each time (`array` only).
        done: makes the done flag of a bool.
        mark: `(env_id, episode, step) -> list of dicts`, merged into the infos of that step.
    """

    def __init__(self, env_id, length, players=2, form="array", reuse=False, done=bool, mark=None):
        self.env_id, self.length, self.players = env_id, length, players
        self.form, self.reuse, self.done, self.mark = form, reuse, done, mark
        self.episode, self.count = -1, 0
        self.actions: list[Any] = []
        self.rows = np.zeros((players, 4), np.float32)

    def _obs(self):
        self.rows[:] = [[self.env_id, player, self.episode, self.count] for player in range(self.players)]
        return self.rows if self.reuse else FORMATS[self.form](self.rows)

    def reset(self):
        self.episode, self.count = self.episode + 1, 0
        return self._obs()

    def step(self, action):
        self.actions.append(action)
        self.count += 1
        done = self.count >= self.length
        infos = [{} for _ in range(self.players)]
        if done:
            infos = [
                {"eval_episode_return": float(player * 10 + self.count), "result": ["wins", "losses"][player % 2]}
                for player in range(self.players)
            ]
        for info, more in zip(
            infos, self.mark(self.env_id, self.episode, self.count) if self.mark else (), strict=False
        ):
            info.update(more)
        reward = np.arange(1, self.players + 1, dtype=np.float32)[:, None]
        return Timestep(self._obs(), reward, self.done(done), infos)


class BattleManager(FakeManager):
    """A `FakeManager` over `BattleEnv`s."""

    def __init__(self, lengths, episode_num=float("inf"), after_step=None, **env_kwargs):
        super().__init__(lengths, episode_num, after_step)
        self.envs = [BattleEnv(i, length, **env_kwargs) for i, length in enumerate(lengths)]

    def step(self, actions):
        timesteps = {i: self.envs[i].step(action) for i, action in actions.items()}
        for i, timestep in timesteps.items():
            if not np.all(timestep.done):
                self.obs[i] = timestep.obs
                continue
            self.played[i] += 1
            # The env's next reset may write into the arrays of its last step.
            timesteps[i] = timestep._replace(obs=FORMATS["array"](timestep.obs) if self.envs[i].reuse else timestep.obs)
            if self.played[i] < self._episode_num:
                self.obs[i] = self.envs[i].reset()
            else:
                self.obs.pop(i, None)
        return timesteps if self.after_step is None else self.after_step(timesteps)


class Player(ScriptedPolicy):
    """A scripted policy with the settings that battles take from its config."""

    def __init__(self, n=8, on_policy=False, **kwargs):
        collect = {"n_sample": n, "n_episode": n, **kwargs.pop("collect", {})}
        super().__init__(n_sample=n, **kwargs)
        self.attributes["cfg"].update(EasyDict(on_policy=on_policy, collect=collect))


class PlainPolicy(ScriptedPolicy):
    """Its transitions go through columns."""

    @plain_transition("action")
    def process_transition(self, obs: Any, output: Any, timestep: Any) -> dict[str, Any]:
        raise AssertionError("a plain transition is asked for")


class PlainPlayer(Player):
    """A `PlainPolicy` of a battle."""

    process_transition = PlainPolicy.process_transition


class BareBot:
    """A player without any settings, whose data nobody wants: it has `forward` and `reset` only."""

    collect_data = False

    def __init__(self):
        self.resets: list[Any] = []

    def forward(self, obs):
        return {env_id: {"action": np.array([-1])} for env_id in obs}

    def reset(self, env_ids=None):
        self.resets.append(env_ids)


class LateManager(FakeManager):
    """Some envs answer later than they are acted on, or begin an episode later; they are not ready until then.

    Args:
        late: `{env_id: number of further calls of step until the answer}`.
        slow_reset: envs that begin an episode only within a later `step`, or a `wait_another`.

    Attributes:
        waits: number of calls of `step` without an action, and of `wait_another`.
    """

    def __init__(self, *args, late=None, slow_reset=(), **kwargs):
        super().__init__(*args, **kwargs)
        self.late = {1: 1} if late is None else late
        self.slow_reset = slow_reset
        self.waits = [0, 0]
        self.answers: dict[int, list[Any]] = {}  # [calls left, timestep] of the envs under way
        self.resetting: set[int] = set()

    @property
    def ready_obs(self):
        busy = self.answers.keys() | self.resetting
        return {env_id: obs for env_id, obs in super().ready_obs.items() if env_id not in busy}

    def step(self, actions):
        self.waits[0] += not actions
        self.resetting.clear()
        assert not actions.keys() & self.answers.keys()
        for answer in self.answers.values():
            answer[0] -= 1
        for env_id, timestep in super().step(actions).items():
            self.answers[env_id] = [self.late.get(env_id, 0), timestep]
        if self.answers and not actions:
            min(self.answers.values(), key=lambda answer: answer[0])[0] = 0  # it is waited for
        due = {env_id: timestep for env_id, (left, timestep) in self.answers.items() if left <= 0}
        for env_id, timestep in due.items():
            del self.answers[env_id]
            if np.all(timestep.done) and env_id in self.slow_reset:
                self.resetting.add(env_id)
        return due

    def wait_another(self):
        self.waits[1] += 1
        if not self.resetting:
            return False
        self.resetting.pop()
        return True

    def reset(self, reset_param=None):
        for env_id in range(self.env_num) if reset_param is None else reset_param:
            self.answers.pop(env_id, None)
            self.resetting.discard(env_id)
        super().reset(reset_param)


class LateBattleManager(LateManager, BattleManager):
    """A `LateManager` over `BattleEnv`s."""
