"""BaseEnvManager: the states of its envs, what it returns, and what it does when envs fail."""

import logging
import threading
from functools import partial

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict

from ding.envs import BaseEnvManager, EnvState, GymnasiumEnv
from tests.envs.env_manager.scripted_env import Raise, ScriptedEnv, Wait, states

FAST = {"retry_waiting_time": 0}


BROKEN = Raise(ValueError("broken"))


class Pool:
    """A manager over scripted envs, with every env it ever made in `made` (the first is the reference)."""

    def __init__(self, *envs, **cfg):
        self.made = []
        makers = [partial(self._make, number, **env) for number, env in enumerate(envs)]
        self.manager = BaseEnvManager(makers, EasyDict({**FAST, **cfg}))

    def _make(self, number, **how):
        self.made.append(ScriptedEnv(number, **how))
        return self.made[-1]

    @property
    def envs(self):
        return self.made[1:]


def act(manager, *env_ids):
    return manager.step({env_id: np.array([env_id]) for env_id in env_ids or manager.ready_obs_id})


def test_an_empty_or_partial_config_is_filled_from_the_defaults():
    manager = BaseEnvManager([ScriptedEnv])
    manager.launch()
    assert not act(manager)[0].done
    assert BaseEnvManager([ScriptedEnv], EasyDict(episode_num=1))._cfg.max_retry == 1


def test_no_envs_is_an_index_error():
    with pytest.raises(IndexError):
        BaseEnvManager([], {})


def test_spaces_come_from_a_reference_env_that_is_not_stepped():
    pool = Pool({"space": None}, {})
    manager, reference = pool.manager, pool.made[0]
    assert manager.env_ref is reference
    spaces = manager.observation_space, manager.action_space, manager.reward_space
    assert spaces == (None, reference.action_space, None)
    assert (manager.env_num, manager.closed, len(pool.made)) == (2, True, 1)
    manager.launch()
    assert len(pool.made) == 3
    assert reference.told == []


def test_an_env_without_spaces_before_its_reset_is_reset_for_them():
    class Late(ScriptedEnv):
        @property
        def observation_space(self):
            if not self.told:
                raise ValueError("not yet")
            return "late space"

        @observation_space.setter
        def observation_space(self, space):
            """It is known late."""

    manager = BaseEnvManager([Late], {})
    assert manager.observation_space == "late space"
    assert manager.env_ref.calls == {"make": 0, "reset": 0, "close": 0}


def test_state_values():
    assert [(state.name, int(state)) for state in EnvState] == [
        ("VOID", 0),
        ("INIT", 1),
        ("RUN", 2),
        ("RESET", 3),
        ("DONE", 4),
        ("ERROR", 5),
        ("NEED_RESET", 6),
    ]


def test_observations_are_the_arrays_of_the_env():
    pool = Pool({"length": 5})
    pool.manager.launch()
    timestep = act(pool.manager)[0]
    assert timestep.obs is pool.envs[0]._arrays[0]
    assert pool.manager.ready_obs[0] is timestep.obs


# -- failures


def test_a_failed_step_is_told_with_its_origin_and_marks_the_env():
    manager = Pool({"deeds": {("step", 0): BROKEN}}, {}).manager
    manager.launch()
    with pytest.raises(RuntimeError, match=r"Env 0 step") as caught:
        act(manager)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "Traceback" in str(caught.value)
    assert "scripted_env.py" in str(caught.value)
    assert "ValueError: broken" in str(caught.value)
    assert states(manager) == ["ERROR", "RUN"]
    assert not manager.closed
    assert manager.ready_obs_id == [1]
    manager.reset({0: None})
    assert manager.ready_obs_id == [0, 1]


def test_a_step_is_tried_max_retry_times_on_the_same_env():
    pool = Pool({"deeds": {("step", 0): BROKEN, ("step", 1): BROKEN}}, max_retry=3)
    pool.manager.launch()
    assert act(pool.manager)[0].obs.tolist() == [0, 0, 1]
    assert [env.calls["step"] for env in pool.envs] == [2]


def test_an_env_that_cannot_be_made_closes_those_that_were():
    class Unlicensed(Pool):
        def _make(self, number, **how):
            if len(self.made) == 2:
                raise OSError("no licence")
            return super()._make(number, **how)

    pool = Unlicensed({}, {})
    with pytest.raises(OSError):
        pool.manager.launch()
    assert pool.manager.closed
    assert pool.envs[0].calls["close"] == 0
    assert states(pool.manager) == ["VOID"] * 2


@pytest.mark.differs(
    "fails on float timeouts, and fires a second late on others",
    "accepts any number of seconds, and fires on time",
)
def test_a_step_that_takes_too_long_is_broken_off():
    manager = Pool({"deeds": {("step", 0): Wait()}}, step_timeout=0.05).manager
    manager.launch()
    with pytest.raises(RuntimeError, match="Env 0 step") as caught:
        act(manager)
    assert isinstance(caught.value.__cause__, TimeoutError)


def test_a_reset_that_takes_too_long_is_tried_again():
    pool = Pool({"deeds": {("reset", 0): Wait()}}, {}, reset_timeout=0.05, max_retry=2)
    pool.manager.launch()
    assert len(pool.envs[0].told) == 2
    assert pool.manager.ready_obs_id == [0, 1]


def test_timeouts_do_not_disturb_calls_that_are_in_time_or_in_a_thread():
    manager = Pool({"length": 1}, step_timeout=60, reset_timeout=60.5).manager
    manager.launch()
    done = []
    thread = threading.Thread(target=lambda: done.append(act(manager)[0].done))
    thread.start()
    thread.join(10)
    assert done == [True]
    assert act(manager)[0].done


# -- seeds


def episodes(seed, rounds=150, env_num=2, **cfg):
    """First observation of each episode of each env."""
    manager = BaseEnvManager([lambda: GymnasiumEnv({"env_id": "CartPole-v1", **cfg})] * env_num, {})
    manager.seed(seed)
    manager.launch()
    found = {env_id: [obs.tobytes()] for env_id, obs in manager.ready_obs.items()}
    for _ in range(rounds):
        for env_id, timestep in manager.step(dict.fromkeys(manager.ready_obs_id, 1)).items():
            if timestep.done:
                found[env_id].append(manager.ready_obs[env_id].tobytes())
    manager.close()
    return found


@pytest.mark.guarantees("equal-bits")
def test_equal_seeds_give_equal_episodes_and_no_episode_is_played_twice():
    first, second = episodes(0), episodes(0)
    assert first == second
    starts = first[0] + first[1]
    assert len(starts) > 20
    assert len(set(starts)) == len(starts)
    assert not set(starts) & set(episodes(1)[0])


def test_episode_k_of_env_i_is_seeded_from_seed_i_and_k():
    expected = []
    for k in range(2):
        seed = int(np.random.SeedSequence([9, 1, k]).generate_state(1)[0])
        expected.append(gymnasium.make("CartPole-v1").reset(seed=seed)[0].tobytes())
    assert episodes(9)[1][:2] == expected
    assert episodes([5, 9])[1][:2] == expected


def test_a_launch_goes_on_where_the_seeded_episodes_stand():
    whole = episodes(4, env_num=1)[0]
    manager = BaseEnvManager([lambda: GymnasiumEnv({"env_id": "CartPole-v1"})], {})
    manager.seed(4)
    starts = []
    for _ in range(2):
        manager.launch()
        starts.append(manager.ready_obs[0].tobytes())
        manager.close()
    assert starts == whole[:2]


@pytest.mark.differs(
    "starts every episode of an env in the same way with `dynamic_seed=False`",
    "seeds each differently, in a sequence that repeats",
)
def test_static_seeds_do_not_repeat_an_episode():
    manager = BaseEnvManager([lambda: GymnasiumEnv({"env_id": "CartPole-v1"})], {})
    manager.seed(4, dynamic_seed=False)
    manager.launch()
    first = manager.ready_obs[0].tobytes()
    manager.reset()
    second = manager.ready_obs[0].tobytes()
    manager.seed(4, dynamic_seed=False)
    manager.reset()
    assert manager.ready_obs[0].tobytes() == first != second
    manager.close()


def test_an_env_made_anew_goes_on_with_its_episodes():
    made = []

    class LostAfterOneReset(GymnasiumEnv):
        def reset(self, **param):
            if len(made) == 2 and self.is_open:
                raise OSError("lost")
            self.is_open = True
            return super().reset(**param)

        is_open = False

    def make():
        made.append(LostAfterOneReset({"env_id": "CartPole-v1"}))
        return made[-1]

    manager = BaseEnvManager([make], {"max_retry": 2, "retry_type": "renew", **FAST})
    manager.seed(4)
    manager.launch()
    manager.reset()
    assert len(made) == 3
    assert manager.ready_obs[0].tobytes() == episodes(4, env_num=1)[0][1]
    manager.close()


# -- replay, figures and attributes


@pytest.mark.parametrize("paths", ["v", ["v", "w"]])
def test_replay_paths_are_applied_at_launch_and_spare_running_envs_a_reset(paths, caplog):
    pool = Pool({"length": 1}, {"length": 2}, auto_reset=False)
    pool.manager.enable_save_replay(paths)
    pool.manager.launch()
    assert [env.replay_path for env in pool.envs] == (["v", "v"] if paths == "v" else paths)
    act(pool.manager)
    with caplog.at_level(logging.WARNING):
        pool.manager.reset()
    assert [len(env.told) for env in pool.envs] == [2, 1]
    assert "env 1 is recorded and runs" in caplog.text


def test_replay_paths_must_be_one_for_each_env():
    with pytest.raises(AssertionError):
        Pool({}, {}).manager.enable_save_replay(["v"])
