"""States of env managers: what follows a state is what would have followed without a stop, to the last bit."""

from __future__ import annotations

import functools

import gymnasium
import numpy as np
import pytest
import torch
from easydict import EasyDict
from gymnasium import spaces

from ding.envs import (
    AsyncSubprocessEnvManager,
    BaseEnv,
    BaseEnvManager,
    BaseEnvManagerV2,
    BaseEnvTimestep,
    DingEnvWrapper,
    GymnasiumEnv,
    SubprocessEnvManagerV2,
    SyncSubprocessEnvManager,
)
from ding.envs.env_wrappers.base_wrapper import EnvWrapper
from ding.envs.env_wrappers.env_wrappers import EpisodicLifeWrapper, TimeLimitWrapper
from tests.envs.env_manager.scripted_env import Make, ScriptedEnv, be_abnormal
from tests.envs.toys import Toy
from tests.envs.usual_env import (
    DynamicEnv,
    FlaggedEnv,
    NoisyEnv,
    NoisyWrapper,
    RenewingEnv,
    SpawningEnv,
    UsualEnv,
)
from tests.envs.walks import Endless, TellingWalk, Walk
from tests.same_state import through_bytes

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


def launched(cls, env_fns, trust_pickle=False, seed=3, wanted=True, **cfg):
    manager = cls(env_fns, EasyDict({"retry_waiting_time": 0, **cfg}))
    if seed is not None:
        manager.seed(seed)
    if wanted:
        manager.enable_states(trust_pickle)
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


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
        return
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        one, other = one.numpy(), other.numpy()
    assert np.asarray(one).dtype == np.asarray(other).dtype
    np.testing.assert_array_equal(one, other)


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
@pytest.mark.parametrize("way", ["told", "pickled", "replayed"])
def test_envs_go_on_as_if_nothing_had_happened(cls, way):
    # Those that follow no seed could not be replayed.
    makes = {"told": TellingWalk, "pickled": lambda: Walk(seeded=False), "replayed": lambda: Walk(in_lock=True)}
    check_twin(cls, lambda: [makes[way]] * 2, trust_pickle=way == "pickled")


@pytest.mark.parametrize("way", ["told", "pickled", "replayed"])
def test_envs_that_run_asynchronously_go_on_each_for_itself(way):
    makes = {"told": TellingWalk, "pickled": lambda: Walk(seeded=False), "replayed": lambda: Walk(in_lock=True)}

    def each(manager, rounds):
        seen = {env_id: [] for env_id in range(3)}
        for _ in range(rounds):
            actions = {env_id: np.array([env_id]) for env_id in manager.ready_obs}
            for env_id, step in manager.step(actions).items():
                seen[env_id].append((step.obs, step.done))
        return seen

    def made():
        return launched(AsyncSubprocessEnvManager, [makes[way]] * 3, way == "pickled", wait_num=3)

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
@pytest.mark.parametrize("trust_pickle, wrapped", [(False, True), (True, False)])
def test_environments_of_gymnasium_go_on(cls, trust_pickle, wrapped):
    cfg = {"env_id": "CartPole-v1"}
    make = (lambda: DingEnvWrapper(cfg=cfg)) if wrapped else (lambda: GymnasiumEnv(cfg))
    check_twin(cls, lambda: [make] * 2, trust_pickle=trust_pickle, actions=lambda seed: integers(seed, 2))


@pytest.mark.differs(
    "When a run resumes, all envs restart.",
    "Env managers have a state (`state_dict`): an env resumes in mid-episode, by its own `get_state`, by a pickle if "
    "`trust_pickle` is set, or by replaying its episode from its seed and the generators that it held.",
)
@in_repeatable
@pytest.mark.parametrize("rounds", [4, 75])
def test_an_env_that_follows_its_seed_at_the_first_reset_only_goes_on(cls, rounds):
    check_twin(cls, lambda: [UsualEnv] * 2, rounds=rounds, after=60, actions=lambda seed: integers(seed, 2))


@in_both
@pytest.mark.parametrize("rounds", [4, 75])
@pytest.mark.parametrize("make", [NoisyEnv, RenewingEnv, SpawningEnv, FlaggedEnv])
def test_the_generators_that_an_env_holds_go_on(cls, make, rounds):
    check_twin(cls, lambda: [make] * 2, rounds=rounds, after=60, actions=lambda seed: integers(seed, 2))


@in_both
def test_an_env_that_is_seeded_again_while_it_runs_goes_on(cls):
    for make in (FlaggedEnv, NoisyEnv):
        with launched(cls, [make] * 2) as manager, launched(cls, [make] * 2) as other:
            drive(manager, 40, integers(1, 2))
            manager.seed(8)
            manager.reset()
            drive(manager, 3, integers(1, 2))  # within the first episode of the new seed
            assert other.load_state_dict(through_bytes(manager.state_dict())) == []
            assert_same(drive(other, 60, integers(2, 2)), drive(manager, 60, integers(2, 2)))


@in_both
def test_a_wrapper_with_a_generator_of_its_own_goes_on(cls):
    make = functools.partial(GymnasiumEnv, {"env_id": "CartPole-v1", "wrappers": [NoisyWrapper]})
    check_twin(cls, lambda: [make] * 2, rounds=60, actions=lambda seed: integers(seed, 2))


@in_both
def test_an_env_that_was_made_anew_for_its_reset_goes_on(cls, tmp_path):
    class Failing(FlaggedEnv):
        def reset(self):
            if (tmp_path / "broken").exists():
                (tmp_path / "broken").unlink()
                raise ValueError("broken")
            return super().reset()

    cfg = {"max_retry": 2, "retry_type": "renew"}
    with launched(cls, [Failing], **cfg) as manager, launched(cls, [Failing], **cfg) as other:
        drive(manager, 40, integers(1, 2))
        (tmp_path / "broken").touch()
        manager.reset()
        for rounds in (3, 40):
            drive(manager, rounds, integers(1, 2))
            assert other.load_state_dict(through_bytes(manager.state_dict())) == []
            assert_same(drive(other, 60, integers(2, 2)), drive(manager, 60, integers(2, 2)))


def mixed(seed):
    own = integers(seed)
    return lambda: (own(), {"x": own(), "n": int(own()[0])})


def plain(seed):
    own = integers(seed)
    return lambda: int(own()[0])


def ragged(seed):
    own = integers(seed)
    return lambda: [own(), own().repeat(int(own()[0]))]


def continuous(seed):
    rng = np.random.default_rng(seed)
    return lambda: rng.uniform(-1, 1, 1).astype(np.float32)


@in_both
@pytest.mark.parametrize("wrappers", [
    [{"type": "obs_norm"}, {"type": "reward_norm", "kwargs": {"reward_discount": 0.9}}],
    [{"type": "obs_norm", "kwargs": {"keep_statistics": False}}],
    [{"type": "frame_stack", "kwargs": {"n_frames": 3}}, functools.partial(TimeLimitWrapper, max_limit=17)],
    [{"type": "delay_reward", "kwargs": {"delay_reward_step": 4}}, {"type": "eval_episode_return"}],
    [functools.partial(gymnasium.wrappers.TimeLimit, max_episode_steps=13), gymnasium.wrappers.NormalizeObservation],
], ids=["normalized", "normalized by episode", "frames", "delayed", "gymnasium"])  # fmt: skip
def test_what_wrappers_hold_goes_on(cls, wrappers, monkeypatch):
    def make():
        return DingEnvWrapper(cfg={"env_id": "Pendulum-v1", "env_wrapper": wrappers, "act_scale": True})

    with launched(cls, [make] * 2) as manager, launched(cls, [make] * 2) as other:
        actions = continuous(1)
        for _ in range(25):
            drive(manager, 9, actions)
            manager.sync_normalization()
        drive(manager, 3, actions)
        problems = other.load_state_dict(through_bytes(manager.state_dict()))
        if gymnasium.wrappers.NormalizeObservation in wrappers:  # it gathers over episodes and nobody knows of it
            (problem,) = problems  # one line for a cause
            assert problem.startswith("envs 0, 1: its replayed episode ends at another observation")
            return
        assert problems == []
        for _ in range(30):
            assert_same(drive(other, 9, continuous(2)), drive(manager, 9, continuous(2)))
            for each in (manager, other):
                each.sync_normalization()
            assert_same(other.normalization_state(), manager.normalization_state())


@in_both
@pytest.mark.parametrize("form, actions", [
    (lambda place: {"a": place, "b": (place[:1], float(place[1]))}, integers),
    (lambda place: (place, {"mask": place > 0}), integers),
    (lambda place: place.astype(np.float64)[None], integers),
    (lambda place: np.where(place > 0, place, np.nan), integers),
    (lambda place: [int(place[0]), None, "text", np.float32(place[1])], integers),
    (torch.from_numpy, integers),
    (np.asarray, mixed),
    (np.asarray, plain),
    (np.asarray, ragged),
], ids=["dict", "tuple", "shape", "nan", "objects", "tensor", "mixed actions", "ints", "ragged actions"])  # fmt: skip
def test_observations_and_actions_of_any_form_go_on(cls, form, actions):
    check_twin(cls, lambda: [functools.partial(Walk, form, in_lock=True)] * 2, actions=actions)


@in_both
def test_an_episode_of_many_steps_goes_on(cls):
    class Long(Endless):
        def step(self, action):
            action += 1  # an env may write into its action
            return super().step(action)

    check_twin(cls, lambda: [Long] * 2, rounds=1100)


@in_both
def test_a_life_of_a_game_goes_on(cls):
    def make():
        lives = [3, 3, 2, 2, 2, 1, 1, 1, 1, 0]
        toy = Toy(length=9, lives=lives, observe=lambda episode, step: np.array([step, step], np.float32))
        return DingEnvWrapper(toy, {"env_wrapper": [EpisodicLifeWrapper]})

    for rounds in (2, 3, 6, 9, 10):
        check_twin(cls, lambda: [make] * 2, rounds=rounds, after=20)


@in_both
def test_a_state_may_be_told_when_episodes_have_just_ended(cls):
    class Brief(Walk):
        def step(self, action):
            return super().step(action)._replace(done=True)

    check_twin(cls, lambda: [Brief, Brief], rounds=1)


@in_both
def test_an_episode_that_cannot_be_played_again_is_dropped(cls):
    makes = [functools.partial(Endless, in_lock=True, seeded=False), functools.partial(Endless, in_lock=True)]
    with launched(cls, makes) as manager:
        drive(manager, 5, integers(1))
        state = through_bytes(manager.state_dict())
        with launched(cls, makes) as other:
            (problem,) = other.load_state_dict(state)
            assert problem.startswith("env 0: ") and "not deterministic" in problem and "dropped" in problem
            assert other.episodes_of([0, 1]).tolist() == (manager.episodes_of([0, 1]) + [1, 0]).tolist()
            assert sorted(other.ready_obs) == [0, 1]
            np.testing.assert_array_equal(other.ready_obs[1], manager.ready_obs[1])
            drive(other, 5, integers(1))


@in_both
def test_an_episode_that_ends_earlier_than_before_is_dropped(cls, tmp_path):
    class Shrinking(Walk):
        def step(self, action):
            flag = tmp_path / "shrunk"
            return super().step(action)._replace(done=flag.exists())

    with launched(cls, [Shrinking]) as manager, launched(cls, [Shrinking]) as other:
        drive(manager, 3, integers(1))
        state = manager.state_dict()
        (tmp_path / "shrunk").touch()
        (problem,) = other.load_state_dict(state)
        assert "it ends before all recorded actions are replayed" in problem


@in_both
def test_an_env_that_fails_when_it_is_played_again_is_reset(cls, tmp_path):
    class Failing(Walk):
        def step(self, action):
            if (tmp_path / "broken").exists():
                raise ValueError("broken")
            return super().step(action)

    with launched(cls, [Failing]) as manager, launched(cls, [Failing]) as other:
        drive(manager, 3, integers(1))
        state = manager.state_dict()
        (tmp_path / "broken").touch()
        (problem,) = other.load_state_dict(state)
        assert "broken" in problem
        (tmp_path / "broken").unlink()
        drive(other, 3, integers(1))


@in_both
def test_the_episode_after_a_dropped_one_is_the_one_that_would_have_followed(cls):
    class Odd(Endless):  # no two of them have the same first episode
        def reset(self, start=0.0):
            return super().reset(start + (np.random.default_rng().normal() if self.resets == 0 else 0.0))

    with launched(cls, [Odd]) as manager, launched(cls, [Odd]) as other:
        drive(manager, 2, integers(1))
        (problem,) = other.load_state_dict(manager.state_dict())
        assert "another observation" in problem
        manager.reset({0: None})
        assert_same(drive(other, 9, integers(1)), drive(manager, 9, integers(1)))


@in_both
def test_without_being_asked_to_a_manager_knows_only_envs_that_tell_their_state(cls):
    makes = [TellingWalk, Walk]
    with launched(cls, makes, wanted=False) as manager, launched(cls, makes, wanted=False) as other:
        drive(manager, 5, integers(1))
        (problem,) = other.load_state_dict(through_bytes(manager.state_dict()))
        assert problem.startswith("env 1: neither its state nor its actions since the reset are known")
        assert_same(other.ready_obs[0], manager.ready_obs[0])


@in_both
def test_a_manager_that_is_asked_when_it_is_open_knows_episodes_from_the_next_on(cls):
    with launched(cls, [Endless], wanted=False) as manager, launched(cls, [Endless]) as other:
        manager.enable_states()
        drive(manager, 3, integers(1))
        (problem,) = other.load_state_dict(manager.state_dict())
        assert "known" in problem
        manager.reset()
        drive(manager, 3, integers(1))
        assert other.load_state_dict(manager.state_dict()) == []
        assert_same(drive(other, 40, integers(2)), drive(manager, 40, integers(2)))


@in_both
def test_an_env_that_keeps_its_arguments_in_its_pickle_is_played_again(cls):
    class Rebuilt(gymnasium.Env, gymnasium.utils.EzPickle):
        observation_space = spaces.Box(-1e9, 1e9, (1,))

        def __init__(self):
            self.action_space = spaces.Discrete(3)
            gymnasium.utils.EzPickle.__init__(self)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.place = self.np_random.normal(size=1)
            return self.place, {}

        def step(self, action):
            self.place = self.place + self.np_random.normal() + action
            return self.place, 1.0, False, False, {}

    check_twin(cls, lambda: [lambda: GymnasiumEnv({"env": Rebuilt})] * 2, trust_pickle=True)


@in_both
def test_pickles_are_neither_made_nor_read_without_trust(cls):
    class Trap(Walk):
        def __reduce__(self):
            raise AssertionError("it is pickled")

    check_twin(cls, lambda: [Trap] * 2)
    with launched(cls, [functools.partial(Walk, seeded=False)], trust_pickle=True) as manager:
        drive(manager, 3, integers(1))
        state = manager.state_dict()
        assert "pickled" in state["envs"][0]
        with launched(cls, [functools.partial(Walk, seeded=False)]) as other:
            assert len(other.load_state_dict(state)) == 1


@in_both
def test_a_wrapper_does_not_pass_for_telling_its_state_because_its_env_does(cls):
    class Adding(EnvWrapper):
        total = 0.0
        spaces = property(lambda self: self.env.spaces)

        def reset(self, **kwargs):
            self.total = 0.0
            return super().reset(**kwargs)

        def step(self, action):
            timestep = self.env.step(action)
            self.total += 1
            return timestep._replace(reward=np.full(1, self.total, np.float32))

    class Telling(Walk):
        def get_state(self):
            return {}

        def set_state(self, state):
            pass

    check_twin(cls, lambda: [lambda: Adding(Telling())] * 2)


def test_what_an_env_tells_must_be_plain():
    class Odd(TellingWalk):
        def get_state(self):
            return {"me": self}

    with launched(BaseEnvManager, [Odd]) as manager, pytest.raises(TypeError, match=r"get_state\(\) of Walk must"):
        manager.state_dict()


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


def test_an_env_whose_step_was_abnormal_still_waits_for_a_reset():
    make = Make(0, length=9, deeds={("step", 1): be_abnormal})
    with launched(SyncSubprocessEnvManager, [make, Walk]) as manager:
        drive(manager, 2, integers(1))
        assert list(manager.ready_obs) == [1]
        with launched(SyncSubprocessEnvManager, [ScriptedEnv, Walk]) as other:
            assert other.load_state_dict(manager.state_dict()) == []
            assert list(other.ready_obs) == [1]
            assert_same(other.ready_obs[1], manager.ready_obs[1])
            other.reset({0: None})
            assert list(other.ready_obs) == [0, 1]


@in_both
def test_seeds_and_arguments_of_resets_that_are_still_to_count_go_on(cls):
    with launched(cls, [Walk] * 2) as manager, launched(cls, [Walk] * 2) as other:
        drive(manager, 4, integers(1))
        manager.seed({1: 77})
        manager.reset({0: {"start": 100.0}})
        drive(manager, 1, integers(1))
        assert other.load_state_dict(through_bytes(manager.state_dict())) == []
        assert other.episodes_of([0, 1]).tolist() == manager.episodes_of([0, 1]).tolist()
        assert other.ready_obs[0].min() > 50
        assert_same(drive(other, 60, integers(2)), drive(manager, 60, integers(2)))


class Dynamic(BaseEnv):
    """Seeds itself as envs of DI-engine do, from a global generator."""

    draws = False
    observation_space, reward_space = spaces.Box(-1e9, 1e9, (1,)), spaces.Box(-1, 1, (1,))

    def __init__(self):
        self.action_space = spaces.Discrete(3)
        self.hold = lambda: None  # cannot be pickled

    def seed(self, seed, dynamic_seed=True):
        self.base = seed

    def reset(self):
        self.rng = np.random.RandomState(self.base + 100 * np.random.randint(1, 1000))
        return self.rng.normal(size=1).astype(np.float32)

    def step(self, action):
        done = bool(self.rng.random() < 0.1)
        obs = self.rng.normal(size=1).astype(np.float32) + np.float32(np.random.normal() if self.draws else 0)
        return BaseEnvTimestep(obs, np.ones(1, np.float32), done, {"eval_episode_return": 1.0})

    def close(self):
        pass

    def __repr__(self):
        return "Dynamic"


@pytest.mark.parametrize(
    "cls, make",
    [
        (BaseEnvManager, Dynamic),
        # In a process of its own, an env may draw at each step.
        (SyncSubprocessEnvManager, type("Drawing", (Dynamic,), {"draws": True})),
        (BaseEnvManager, DynamicEnv),
        (SyncSubprocessEnvManager, DynamicEnv),
    ],
)
def test_envs_that_draw_from_global_generators_go_on(cls, make):
    with launched(cls, [make] * 2) as manager, launched(cls, [make] * 2) as other:
        drive(manager, 12, integers(1))
        state = through_bytes(manager.state_dict())
        generators = np.random.get_state()
        assert other.load_state_dict(state) == []
        assert_same(list(np.random.get_state()), list(generators))  # nothing has drawn from those of this process
        seen = drive(manager, 40, integers(2))
        np.random.set_state(generators)
        assert_same(drive(other, 40, integers(2)), seen)


@in_both
def test_a_state_of_other_envs_and_a_closed_manager_are_refused(cls):
    with launched(cls, [Walk] * 2) as manager, launched(cls, [Walk] * 3) as other:
        with pytest.raises(ValueError, match="the state is of 2 envs, but there are 3"):
            other.load_state_dict(manager.state_dict())
        manager.close()
        for act in (manager.state_dict, lambda: manager.load_state_dict({})):
            with pytest.raises(AssertionError, match="is closed"):
                act()


def test_a_state_at_each_round_leaves_the_actions_in_few_columns():
    with launched(BaseEnvManager, [Endless]) as manager:
        for _ in range(40):
            drive(manager, 1, integers(1))
            state = manager.state_dict()
        (part,) = state["envs"][0]["episode"]["parts"]
        assert len(part["actions"]) == 1 and state["envs"][0]["episode"]["steps"] == 40
