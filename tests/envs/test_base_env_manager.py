"""BaseEnvManager: the states of its envs, what it returns, and what it does when envs fail."""

from __future__ import annotations

import logging
import math
import threading

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict

from ding.envs import BaseEnvManager, EnvState, GymnasiumEnv, create_env_manager, get_env_manager_cls
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import ENV_MANAGER_REGISTRY
from tests.envs.fakes import CountingEnv, Failing, Hanging, states

FAST = {"retry_waiting_time": 0}


class Pool:
    """A manager over CountingEnvs, with every env it ever made in `made` (the first is the reference)."""

    def __init__(self, *env_cfgs, **manager_cfg):
        self.made = []
        self.manager = BaseEnvManager(
            [lambda cfg=cfg: self._make(cfg) for cfg in env_cfgs], EasyDict({**FAST, **manager_cfg})
        )

    def _make(self, cfg):
        self.made.append(CountingEnv(cfg))
        return self.made[-1]

    @property
    def envs(self):
        return self.made[1:]


def act(manager, *env_ids):
    return manager.step({env_id: np.array([env_id]) for env_id in env_ids or manager.ready_obs_id})


def test_default_config():
    assert BaseEnvManager.default_config() == {
        "episode_num": math.inf,
        "max_retry": 1,
        "retry_type": "reset",
        "auto_reset": True,
        "step_timeout": None,
        "reset_timeout": None,
        "retry_waiting_time": 0.1,
        "cfg_type": "BaseEnvManagerDict",
    }


def test_it_is_registered_as_base():
    cfg = EasyDict(type="base", episode_num=2)
    assert get_env_manager_cls(cfg) is BaseEnvManager
    manager = create_env_manager(cfg, [lambda: CountingEnv({})])
    assert type(manager) is BaseEnvManager
    assert cfg == {"type": "base", "episode_num": 2}
    with pytest.raises(KeyError):
        create_env_manager({}, [lambda: CountingEnv({})])
    with pytest.raises(KeyError):
        get_env_manager_cls({"type": "nowhere"})


def test_import_names_may_bring_the_manager(tmp_path, monkeypatch):
    (tmp_path / "outside_manager_pkg.py").write_text(
        "from ding.envs import BaseEnvManager\n"
        "from ding.utils.registry_factory import ENV_MANAGER_REGISTRY\n"
        "@ENV_MANAGER_REGISTRY.register('outside')\n"
        "class Outside(BaseEnvManager): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        cfg = {"type": "outside", "import_names": ["outside_manager_pkg"]}
        assert type(create_env_manager(cfg, [lambda: CountingEnv({})])).__name__ == "Outside"
    finally:
        ENV_MANAGER_REGISTRY.pop("outside", None)


def test_an_empty_or_partial_config_is_filled_from_the_defaults():
    manager = BaseEnvManager([lambda: CountingEnv({})])
    manager.launch()
    assert not act(manager)[0].done
    assert BaseEnvManager([lambda: CountingEnv({})], EasyDict(episode_num=1))._cfg.max_retry == 1


@pytest.mark.parametrize(
    "cfg",
    [
        {"retry_type": "restart"},
        {"episode_num": 0},
        {"max_retry": -1},
        {"auto_reset": 1},
        {"step_timeout": "5"},
        {"reset_timeout": 0},
        {"retry_waiting_time": -1},
    ],
)
def test_a_config_is_checked_at_construction(cfg):
    with pytest.raises(ConfigError, match=next(iter(cfg))):
        BaseEnvManager([lambda: CountingEnv({})], cfg)


def test_no_envs_is_an_index_error():
    with pytest.raises(IndexError):
        BaseEnvManager([], {})


def test_spaces_come_from_a_reference_env_that_is_not_stepped():
    pool = Pool({}, {"action_space": "mine"})
    manager = pool.manager
    assert manager.env_ref is pool.made[0]
    assert (manager.observation_space, manager.action_space, manager.reward_space) == (
        "obs space",
        None,
        "reward space",
    )
    assert (manager.env_num, manager.closed, len(pool.made)) == (2, True, 1)
    manager.launch()
    assert len(pool.made) == 3
    assert pool.made[0].params == []


def test_an_env_without_spaces_before_its_reset_is_reset_for_them():
    class Late(CountingEnv):
        @property
        def observation_space(self):
            if not self.params:
                raise ValueError("not yet")
            return "late space"

    manager = BaseEnvManager([lambda: Late({})], {})
    assert manager.observation_space == "late space"
    assert (len(manager.env_ref.params), manager.env_ref.close_count) == (1, 1)


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
    assert timestep.obs is pool.envs[0]._obs
    assert pool.manager.ready_obs[0] is timestep.obs


# -- failures


def test_a_failed_step_is_told_with_its_origin_and_marks_the_env():
    manager = Pool({"on_step": Failing(0)}, {}).manager
    manager.launch()
    with pytest.raises(RuntimeError, match=r"Env 0 step has exceeded max retries\(1\)") as caught:
        act(manager)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "Traceback" in str(caught.value)
    assert "fakes.py" in str(caught.value)
    assert "ValueError: broken" in str(caught.value)
    assert states(manager) == ["ERROR", "RUN"]
    assert not manager.closed
    assert manager.ready_obs_id == [1]
    manager.reset({0: None})
    assert manager.ready_obs_id == [0, 1]


def test_a_step_is_tried_max_retry_times_on_the_same_env():
    hook = Failing(0, 1)
    pool = Pool({"on_step": hook}, max_retry=3)
    pool.manager.launch()
    assert act(pool.manager)[0].obs.tolist() == [0, 1]
    assert (hook.count, len(pool.envs)) == (3, 1)


def test_a_reset_that_fails_every_time_closes_the_manager():
    hook = Failing(*range(9))
    pool = Pool({}, {"on_reset": hook}, max_retry=2)
    with pytest.raises(RuntimeError, match=r"Env 1 reset has exceeded max retries\(2\)") as caught:
        pool.manager.launch()
    assert isinstance(caught.value.__cause__, ValueError)
    assert hook.count == 2
    assert pool.manager.closed
    assert states(pool.manager) == ["VOID"] * 2
    assert [env.close_count for env in pool.envs] == [1, 1]


def test_an_auto_reset_that_fails_closes_the_manager():
    manager = Pool({"length": 1, "on_reset": Failing(1)}).manager
    manager.launch()
    with pytest.raises(RuntimeError, match="Env 0 reset"):
        act(manager)
    assert manager.closed


def test_retry_type_reset_tries_the_same_env_again():
    pool = Pool({"on_reset": Failing(0)}, max_retry=2)
    pool.manager.launch({0: {"level": 1}})
    assert pool.envs[0].params == [{"level": 1}, {"level": 1}]
    assert len(pool.envs) == 1


def test_retry_type_renew_makes_the_env_anew_with_its_seed_and_parameters():
    pool = Pool({"on_reset": Failing(0)}, max_retry=2, retry_type="renew")
    pool.manager.seed(5)
    pool.manager.launch({0: {"level": 1}})
    first, second = pool.envs
    assert (first.close_count, second.params, second.seeds) == (1, [{"level": 1}], [(5,)])
    assert pool.manager.length == [3]


def test_an_env_that_cannot_be_made_closes_those_that_were():
    class Unlicensed(Pool):
        def _make(self, cfg):
            if len(self.made) == 2:
                raise OSError("no licence")
            return super()._make(cfg)

    pool = Unlicensed({}, {})
    with pytest.raises(OSError):
        pool.manager.launch()
    assert pool.manager.closed
    assert pool.envs[0].close_count == 1
    assert states(pool.manager) == ["VOID"] * 2


@pytest.mark.differs(
    "fails on float timeouts, and fires a second late on others",
    "accepts any number of seconds, and fires on time",
)
def test_a_step_that_takes_too_long_is_broken_off():
    manager = Pool({"on_step": Hanging(0)}, step_timeout=0.05).manager
    manager.launch()
    with pytest.raises(RuntimeError, match="Env 0 step") as caught:
        act(manager)
    assert isinstance(caught.value.__cause__, TimeoutError)


def test_a_reset_that_takes_too_long_is_tried_again():
    pool = Pool({"on_reset": Hanging(0)}, {}, reset_timeout=0.05, max_retry=2)
    pool.manager.launch()
    assert len(pool.envs[0].params) == 2
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
    assert [len(env.params) for env in pool.envs] == [2, 1]
    assert "env 1 is recorded and runs" in caplog.text


def test_replay_paths_must_be_one_for_each_env():
    with pytest.raises(AssertionError, match="1 replay paths were given for 2 envs"):
        Pool({}, {}).manager.enable_save_replay(["v"])
