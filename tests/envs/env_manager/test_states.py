"""States of env managers: what follows a state is what would have followed without a stop, to the last bit."""

import functools

import gymnasium
import numpy as np
import pettingzoo
import pytest
from easydict import EasyDict
from gymnasium import spaces

from ding.envs import (
    AsyncSubprocessEnvManager,
    BaseEnvManager,
    BaseEnvManagerV2,
    DingEnvWrapper,
    GymnasiumEnv,
    PettingZooEnv,
    SubprocessEnvManagerV2,
    SyncSubprocessEnvManager,
)
from ding.envs.env.demo_env import DemoEnv
from ding.envs.env_wrappers.base_wrapper import EnvWrapper
from ding.envs.env_wrappers.env_wrappers import TimeLimitWrapper
from tests.envs.walks import Endless, Silent, Walk
from tests.same_state import assert_same, through_bytes

MANAGERS = {
    "base": BaseEnvManager,
    "base_v2": BaseEnvManagerV2,
    "subprocess": SyncSubprocessEnvManager,
    "subprocess_v2": SubprocessEnvManagerV2,
    "async_subprocess": AsyncSubprocessEnvManager,
}
in_repeatable = pytest.mark.parametrize(
    "cls",
    [pytest.param(cls, id=name) for name, cls in list(MANAGERS.items())[:4]],
)
in_both = pytest.mark.parametrize("cls", [BaseEnvManager, SyncSubprocessEnvManager], ids=["base", "subprocess"])


def launched(cls, env_fns, seed=3, **cfg):
    manager = cls(env_fns, EasyDict({"retry_waiting_time": 0, **cfg}))
    if seed is not None:
        manager.seed(seed)
    manager.launch()
    return manager


def is_v2(manager):
    return isinstance(manager, (BaseEnvManagerV2, SubprocessEnvManagerV2))


def drive(manager, rounds, actions):
    """Act `rounds` times in all ready envs; what was seen."""
    seen = []
    for _ in range(rounds):
        obs = manager.ready_obs
        seen.append(obs)
        if is_v2(manager):
            steps = manager.step(np.stack([np.asarray(actions()) for _ in obs]))
            seen += [(int(step.env_id), step.obs, step.reward, bool(step.done)) for step in steps]
            continue
        timesteps = manager.step({env_id: actions() for env_id in obs})
        seen += [(i, step.obs, step.reward, step.done) for i, step in sorted(timesteps.items())]
    seen.append(manager.ready_obs)
    seen.append(manager.random_action())
    return seen


def integers(seed, number=3):
    rng = np.random.default_rng(seed)
    return lambda: rng.integers(0, number, 1)


def check_twin(cls, make_fns, rounds=12, after=40, actions=integers, problems=(), **kwargs):
    """A manager goes on as one that was put into its state."""
    with launched(cls, make_fns(), **kwargs) as manager, launched(cls, make_fns(), **kwargs) as other:
        drive(manager, rounds, actions(1))
        state = through_bytes(manager.state_dict())
        assert other.load_state_dict(state) == list(problems)
        assert_same(drive(other, after, actions(2)), drive(manager, after, actions(2)))
        # And once more, from a manager that was itself put into a state.
        with launched(cls, make_fns(), **kwargs) as third:
            assert third.load_state_dict(through_bytes(other.state_dict())) == []
            assert_same(drive(third, after, actions(4)), drive(manager, after, actions(4)))


@in_repeatable
@pytest.mark.parametrize("make", [Walk, lambda: DemoEnv({})], ids=["walk", "demo"])
def test_envs_with_get_state_and_set_state_go_on(cls, make):
    check_twin(cls, lambda: [make] * 2, actions=lambda seed: integers(seed, 2))


def test_envs_that_run_asynchronously_go_on_each_for_itself():
    def each(manager, rounds):
        seen = {env_id: [] for env_id in range(3)}
        for _ in range(rounds):
            actions = {env_id: np.array([env_id]) for env_id in manager.ready_obs}
            for env_id, step in manager.step(actions).items():
                seen[env_id].append((step.obs, step.done))
        return seen

    def made():
        return launched(AsyncSubprocessEnvManager, [Walk] * 3, wait_num=3)

    with made() as manager, made() as other:
        each(manager, 10)
        while len(manager.ready_obs) != 3:  # nothing may be under way
            manager.step({})
        assert other.load_state_dict(through_bytes(manager.state_dict())) == []
        ours, theirs = each(manager, 40), each(other, 40)
    for env_id, seen in ours.items():
        number = min(len(seen), len(theirs[env_id]))
        assert number > 10
        assert_same(theirs[env_id][:number], seen[:number])


@in_both
@pytest.mark.parametrize("rounds", [4, 75])
@pytest.mark.parametrize("make", [GymnasiumEnv, lambda cfg: DingEnvWrapper(cfg=cfg)], ids=["gymnasium", "wrapper"])
def test_environments_of_gymnasium_go_on(cls, make, rounds):
    makes = [functools.partial(make, {"env_id": "CartPole-v1"})] * 2
    check_twin(cls, lambda: makes, rounds=rounds, actions=lambda seed: integers(seed, 2))


class Race(pettingzoo.ParallelEnv):
    """Two agents walk at random until the first one has made 9 steps; the second ends earlier."""

    metadata = {"name": "race_v0"}  # noqa: RUF012
    possible_agents = ["slow", "fast"]  # noqa: RUF012

    def observation_space(self, agent):
        return spaces.Box(-1e9, 1e9, (2,))

    def action_space(self, agent):
        return spaces.Discrete(3) if agent == "slow" else spaces.Box(-1, 1, (2,))

    def reset(self, seed=None, options=None):
        self.rng, self.count, self.agents = np.random.default_rng(seed), 0, list(self.possible_agents)
        self.places = {agent: self.rng.normal(size=2) for agent in self.agents}
        return dict(self.places), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.count += 1
        for agent, action in actions.items():
            self.places[agent] = self.places[agent] + action + self.rng.normal(size=2)
        ends = {agent: self.count == (9 if agent == "slow" else 6) for agent in actions}
        self.agents = [agent for agent in self.agents if not ends[agent]]
        rewards = {agent: float(self.places[agent][0]) for agent in actions}
        infos = {agent: {} for agent in actions}
        return {agent: self.places[agent] for agent in actions}, rewards, ends, dict.fromkeys(actions, False), infos


@in_both
@pytest.mark.parametrize("rounds", [4, 7, 12])
def test_environments_of_pettingzoo_go_on(cls, rounds):
    def actions(seed):
        rng = np.random.default_rng(seed)
        return lambda: (rng.integers(0, 3, 1), rng.uniform(-1, 1, 2).astype(np.float32))

    check_twin(cls, lambda: [lambda: PettingZooEnv({"env": Race})] * 2, rounds=rounds, actions=actions)


def continuous(seed):
    rng = np.random.default_rng(seed)
    return lambda: rng.uniform(-1, 1, 1).astype(np.float32)


@in_both
@pytest.mark.parametrize("wrappers", [
    [{"type": "obs_norm"}, {"type": "reward_norm", "kwargs": {"reward_discount": 0.9}}],
    [{"type": "obs_norm", "kwargs": {"keep_statistics": False}}],
    [{"type": "obs_norm"}, {"type": "frame_stack"}, {"type": "reward_norm", "kwargs": {"reward_discount": 0.9}},
     {"type": "delay_reward", "kwargs": {"delay_reward_step": 4}}, {"type": "eval_episode_return"}],
    [{"type": "frame_stack", "kwargs": {"n_frames": 3}}, functools.partial(TimeLimitWrapper, max_limit=17)],
    [{"type": "delay_reward", "kwargs": {"delay_reward_step": 4}}, {"type": "eval_episode_return"}],
    [functools.partial(gymnasium.wrappers.TimeLimit, max_episode_steps=13), gymnasium.wrappers.NormalizeObservation],
], ids=["normalized", "normalized by episode", "over normalized", "frames", "delayed", "gymnasium"])  # fmt: skip
def test_what_wrappers_hold_goes_on(cls, wrappers):
    def make():
        env = gymnasium.make("Pendulum-v1", max_episode_steps=40)
        return DingEnvWrapper(env, {"env_wrapper": wrappers, "act_scale": True})

    with launched(cls, [make] * 2) as manager, launched(cls, [make] * 2) as other:
        actions = continuous(1)
        for _ in range(6):
            drive(manager, 9, actions)
            manager.sync_normalization()
        drive(manager, 3, actions)
        problems = other.load_state_dict(through_bytes(manager.state_dict()))
        if gymnasium.wrappers.NormalizeObservation in wrappers:  # it gathers over episodes and nobody knows of it
            (problem,) = problems  # one line for a cause
            assert problem.startswith("envs 0, 1: set_state() fails") and "ends at another observation" in problem
            return
        assert problems == []
        for _ in range(8):
            assert_same(drive(other, 9, continuous(2)), drive(manager, 9, continuous(2)))
            for each in (manager, other):
                each.sync_normalization()
            assert_same(other.normalization_state(), manager.normalization_state())


class Noisy(gymnasium.Wrapper):
    """Adds noise that follows no seed."""

    def step(self, action):
        obs, *others = super().step(action)
        return obs + np.random.default_rng().normal(size=4), *others


class Fading(gymnasium.Wrapper):
    """Gives smaller rewards from step to step, over all episodes."""

    share = 1.0

    def reset(self, **how):
        if self.share == 1.0:  # as if it had played before
            self.share = np.random.default_rng().random()
        return super().reset(**how)

    def step(self, action):
        self.share *= 0.9
        obs, reward, *others = super().step(action)
        return obs, self.share * reward, *others


class Counting(GymnasiumEnv):
    """Overrides a method, and says nothing of its state."""

    def step(self, action):
        return super().step(action)


CARTPOLE = {"env_id": "CartPole-v1"}


@in_both
@pytest.mark.parametrize("make, why", [
    (Silent, "Silent has no get_state"),
    (lambda: EnvWrapper(Endless()), "EnvWrapper has no get_state"),
    (lambda: Counting(CARTPOLE), "Counting overrides reset or step"),
    (lambda: GymnasiumEnv({**CARTPOLE, "wrappers": [Noisy]}), "the replayed episode ends at another observation"),
    (lambda: GymnasiumEnv({**CARTPOLE, "wrappers": [Fading]}), "ends at another observation or return"),
], ids=["silent", "wrapper", "subclass", "not deterministic", "state beyond an episode"])  # fmt: skip
def test_an_env_without_a_state_is_named_and_begins_its_next_episode(cls, make, why):
    makes = [make, Endless]
    with launched(cls, makes) as manager, launched(cls, makes) as other:
        drive(manager, 3, integers(1, 2))
        (problem,) = other.load_state_dict(through_bytes(manager.state_dict()))
        assert problem.startswith("env 0: ") and why in problem and problem.endswith("its running episode is dropped")
        assert other.episodes[[0, 1]].tolist() == (manager.episodes[[0, 1]] + [1, 0]).tolist()
        np.testing.assert_array_equal(other.ready_obs[1], manager.ready_obs[1])
        manager.reset({0: None})
        np.testing.assert_array_equal(other.ready_obs[0], manager.ready_obs[0])


class Failing(Endless):
    def get_state(self):
        raise OSError("no memory")


class Odd(Endless):
    def get_state(self):
        return {"me": self}


@in_both
@pytest.mark.parametrize("make, why", [(Failing, "OSError: no memory"), (Odd, "must return plain values")])
def test_a_state_that_an_env_cannot_give_is_told_when_the_run_resumes(cls, make, why):
    with launched(cls, [make]) as manager, launched(cls, [make]) as other:
        (problem,) = other.load_state_dict(manager.state_dict())
        assert why in problem


@in_both
@pytest.mark.parametrize("cfg", [{"episode_num": 2}, {"auto_reset": False}])
def test_envs_that_wait_for_a_reset_or_for_nothing_stay_so(cls, cfg):
    with launched(cls, [Walk] * 3, **cfg) as manager, launched(cls, [Walk] * 3, **cfg) as other:
        drive(manager, 20, integers(1))
        assert len(manager.ready_obs) < 3
        assert other.load_state_dict(through_bytes(manager.state_dict())) == []
        assert [other.env_state_done(i) for i in range(3)] == [manager.env_state_done(i) for i in range(3)]
        assert_same(drive(other, 5, integers(2)), drive(manager, 5, integers(2)))
        for each in (manager, other):
            each.reset()
        assert_same(drive(other, 9, integers(2)), drive(manager, 9, integers(2)))


@in_both
def test_seeds_and_arguments_of_resets_that_are_still_to_count_go_on(cls):
    with launched(cls, [Walk] * 2) as manager, launched(cls, [Walk] * 2) as other:
        drive(manager, 4, integers(1))
        manager.seed({1: 77})
        manager.reset({0: {"start": 100.0}})
        drive(manager, 1, integers(1))
        assert other.load_state_dict(through_bytes(manager.state_dict())) == []
        assert other.episodes[[0, 1]].tolist() == manager.episodes[[0, 1]].tolist()
        assert other.ready_obs[0].min() > 50
        assert_same(drive(other, 60, integers(2)), drive(manager, 60, integers(2)))


@in_both
def test_a_state_of_other_envs_and_a_closed_manager_are_refused(cls):
    with launched(cls, [Walk] * 2) as manager, launched(cls, [Walk] * 3) as other:
        with pytest.raises(ValueError, match="the state is of 2 envs, but there are 3"):
            other.load_state_dict(manager.state_dict())
        manager.close()
        for act in (manager.state_dict, lambda: manager.load_state_dict({})):
            with pytest.raises(AssertionError):
                act()
