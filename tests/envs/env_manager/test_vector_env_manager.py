"""Vector envs of gymnasium: every step exactly once, in each autoreset mode, and what configs may say of them."""

import copy
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from easydict import EasyDict
from gymnasium.spaces import Box

from ding.entry import serial_pipeline
from ding.envs import GymnasiumEnv, VectorEnvManager, create_env_manager
from ding.envs.env_manager.block import end_code
from ding.example.cartpole_dqn import cartpole_dqn_config, cartpole_dqn_create_config
from ding.utils.config_helper import ConfigError
from ding.utils.data.samples import node_rows
from tests.envs.env_manager.workers import collected, collector_over, episodes

pytestmark = pytest.mark.skipif(
    not hasattr(gymnasium.vector, "AutoresetMode"), reason="this gymnasium cannot reset single envs of a vector env"
)
if hasattr(gymnasium.vector, "AutoresetMode"):
    from tests.envs.env_manager.counting_vector_env import MANY, REAL, CountingVectorEnv

MODES = ("NextStep", "SameStep", "Disabled")
LENGTHS = (3, 1, 4, 0)


def counting(mode="NextStep", lengths=LENGTHS, seed=None, **more):
    own = {
        "lengths": lengths,
        "mode": mode,
        **{key: more.pop(key) for key in ("limit", "form", "actions") if key in more},
    }
    manager = VectorEnvManager({"vector_env": CountingVectorEnv, "kwargs": own, "env_num": len(lengths), **more})
    if seed is not None:
        manager.seed(seed)
    manager.launch()
    return manager


NAME = "tests.envs.env_manager.counting_vector_env:CountingVectorEnv"


@pytest.mark.parametrize("make", [NAME, {"__reference__": NAME}], ids=["name", "saved"])
def test_a_vector_env_is_found_by_its_name(make):
    kwargs = {"mode": "NextStep", "lengths": LENGTHS}
    with create_env_manager(
        {"type": "vector_env", "vector_env": make, "kwargs": kwargs, "env_num": 4}, None
    ) as manager:
        assert isinstance(manager.simulator, CountingVectorEnv) and manager.env_num == 4


def play(manager, rounds, act=lambda ids, t: (ids + t) % 10):
    """By env the episodes, as lists of (obs, action, reward, next obs, terminated, truncated, info)."""
    episodes = {}
    ready = manager.ready_block()
    for t in range(rounds):
        numbers = manager.episodes[ready.env_ids].tolist()
        before = dict(zip(ready.env_ids, zip(node_rows(ready.obs), numbers, strict=True), strict=True))
        actions = np.asarray(act(ready.ids, t))
        by_env = dict(zip(ready.env_ids, actions.tolist(), strict=True))
        step = manager.act(actions[:, None], ready.env_ids)
        assert step.env_ids == ready.env_ids
        assert step.codes.tolist() == [end_code(info) for info in step.infos]
        for env_id, (obs, reward, done, info) in zip(step.env_ids, step.timesteps(), strict=True):
            shown, episode = before[env_id]
            assert done is (info["terminated"] or info["truncated"]) and (reward.dtype, reward.shape) == (
                np.float32,
                (1,),
            )
            entry = shown.tolist(), by_env[env_id], reward.item(), obs.tolist(), info["terminated"], info["truncated"]
            episodes.setdefault((env_id, episode), []).append((*entry, info))
        ready = manager.ready_block() if step.ready is None else step.ready
    return episodes


@pytest.mark.parametrize("limit", [10**9, 2])
@pytest.mark.parametrize("lengths", [LENGTHS, (2, 2, 2), (1, 1), (0, 0), (1,)], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_every_step_is_returned_once_between_the_observations_that_belong_to_it(mode, lengths, limit):
    with counting(mode, lengths, limit=limit) as manager:
        episodes = play(manager, 24)
        steps_of_vector = len(manager.simulator.given)
    for (env_id, number), steps in episodes.items():
        total = 0.0
        for k, (obs, action, reward, after, terminated, truncated, info) in enumerate(steps):
            acted = sum(step[1] for step in steps[:k])
            assert obs == [env_id, number - 1, k, acted]
            assert after == [env_id, number - 1, k + 1, acted + action]
            assert reward == action * 0.5 + k + 1
            assert terminated is (k + 1 == lengths[env_id])
            assert truncated is (not terminated and k + 1 == limit)
            total += reward
            ends = terminated or truncated
            expected = {"step": k + 1, "terminated": terminated, "truncated": truncated}
            if (k + 1) % 2:
                expected["odd"] = k + 1
                assert info.pop("nested")["note"].tolist() == after
            if ends:
                expected["eval_episode_return"] = total
            assert info == expected
            assert ends is (k + 1 == len(steps)) or not ends
    for env_id, length in enumerate(lengths):
        length = min(length or limit, limit)
        of_env = [len(steps) for (i, _), steps in sorted(episodes.items()) if i == env_id]
        assert [number for i, number in sorted(episodes) if i == env_id] == list(range(1, len(of_env) + 1))
        assert all(count == length for count in of_env[:-1]) and of_env[-1] <= length
        # With NEXT_STEP, each episode costs one more step of the vector env.
        cost = length + (mode == "NextStep")
        assert sum(of_env) == sum(step % cost < length for step in range(steps_of_vector))
    assert steps_of_vector == 24 or (mode == "NextStep" and steps_of_vector > 24)


@pytest.mark.parametrize("mode", MODES)
def test_observations_in_dicts_and_numbers_keep_their_form(mode):
    with counting(mode, lengths=(2, 3), form="dict") as manager:
        assert manager.observation_space["a"].dtype == np.float32
        obs = manager.ready_obs[1]
        assert (obs["a"].dtype, obs["a"].tolist(), obs["b"]["c"].shape) == (np.float32, [1, 0, 0, 0], ())
        for _ in range(2):
            timesteps = manager.step({0: 1, 1: 2})
        assert timesteps[0].done and timesteps[0].obs["a"].tolist() == [0, 0, 2, 2]
        assert (timesteps[0].obs["b"]["c"].item(), timesteps[1].obs["b"]["c"].item()) == (2, 2)
        assert manager.ready_obs[1]["a"].tolist() == [1, 0, 2, 4]
    with counting(mode, lengths=(2, 3), form="number") as manager:
        for _ in range(2):
            timesteps = manager.step({0: 1, 1: 2})
        assert [(t.obs.item(), t.obs.shape, t.obs.dtype) for t in timesteps.values()] == [(2, (), np.int64)] * 2


@pytest.mark.parametrize("actions, given", [("MANY", [[1, 3], [2, 0]]), ("REAL", [[0.5, -2], [1, 1.5]])])
def test_actions_of_several_numbers_reach_their_env(actions, given):
    space = {"MANY": MANY, "REAL": REAL}[actions]
    with counting(lengths=(3, 3), actions=space) as manager:
        manager.act(np.array(given), [0, 1])
        manager.step({1: np.array(given[0]), 0: np.array(given[1])})
        assert [batch.tolist() for batch in manager.simulator.given] == [given, given[::-1]]
        assert manager.simulator.given[0].dtype == space.dtype


def scaling(space, count=2):
    env_fn = [partial(GymnasiumEnv, cfg={"act_scale": True})] * count
    kwargs = {"lengths": (3,) * count, "mode": "NextStep", "actions": space}
    return VectorEnvManager({"vector_env": CountingVectorEnv, "kwargs": kwargs}, env_fn)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_are_scaled_onto_the_bounds_which_they_do_not_leave(dtype):
    space = Box(-0.2, 0.1, (2,), dtype)
    with scaling(space) as manager:
        manager.launch()
        assert manager.action_space == Box(-1, 1, (2,)) and manager.simulator_action_space == space
        manager.act(np.array([[1.0, -1.0], [-9.0, 0.0]], np.float32), [0, 1])
        (given,) = manager.simulator.given  # which refuses actions that are not in its space
        np.testing.assert_allclose(given, [[0.1, -0.2], [-0.2, -0.05]], rtol=1e-6)


@pytest.mark.parametrize(
    "actions, error, text",
    [
        ([[1], [10]], ValueError, r"\{1: 10\} are outside of the action space Discrete\(10\): \[0, 9\]"),
        ([[1, 2], [1, 2]], ValueError, r"shape \(2, 2\) do not fit 2 x the action space"),
        ([[1.0], [2.0]], TypeError, "actions of dtype float64 do not fit"),
    ],
)
def test_actions_that_do_not_fit_are_refused_before_any_env_steps(actions, error, text):
    with counting(lengths=(3, 3)) as manager:
        for form in (
            np.array(actions),
            actions,
            torch.tensor(actions, dtype=torch.float64 if error is TypeError else None),
        ):
            with pytest.raises(error, match=text):
                manager.act(form, [0, 1])
        assert manager.simulator.given == []


@pytest.mark.parametrize("mode", MODES)
def test_an_env_that_is_left_out_of_a_step_loses_its_episode(mode):
    with counting(mode, lengths=(9, 3)) as manager:
        assert manager.step({0: 1})[0].obs.tolist() == [0, 0, 1, 1]
        assert manager.ready_obs_id == [0] and manager.episodes[0] == 1 < manager.episodes[1]
        with pytest.raises(AssertionError):
            manager.step({1: 1})
        while manager.ready_obs_id == [0]:
            manager.step({0: 1})
        steps = int(manager.ready_obs[0][2])
        assert steps == 3 + (mode == "NextStep")
        assert manager.ready_obs[1].tolist() == [1, 1, 0, 0]
        assert manager.episodes[0] == 1 < manager.episodes[1]
        step = manager.act([1, 1], [0, 1])
        assert [row.tolist() for row in node_rows(step.obs)] == [[0, 0, steps + 1, steps + 1], [1, 1, 1, 1]]


def test_with_masked_resets_only_the_chosen_envs_are_reset():
    with counting("Disabled", lengths=(9, 9)) as manager:
        manager.step({0: 1, 1: 1})
        manager.reset({1: None})
        assert {i: obs.tolist() for i, obs in manager.ready_obs.items()} == {0: [0, 0, 1, 1], 1: [1, 1, 0, 0]}
        assert manager.episodes[0] == 1 < manager.episodes[1]


def test_seeds_are_for_the_next_reset_of_all_envs():
    with counting(lengths=(9, 9), seed=7) as manager:
        vector = manager.simulator
        manager.reset()
        manager.seed([3, 5])
        manager.step({0: 1, 1: 1})
        manager.reset()
        manager.reset()
        assert vector.seeds == [7, None, [3, 5], None]
        manager.close()
        manager.launch()
        assert (manager.simulator is not vector, manager.simulator.seeds) == (True, [[3, 5]])


def test_the_time_limit_of_the_env_section_and_its_id_make_a_native_vector_env():
    env_fn = [partial(GymnasiumEnv, cfg=EasyDict(env_id="CartPole-v1", max_episode_steps=3))] * 5
    with create_env_manager({"type": "vector_env"}, env_fn) as manager:
        assert type(manager) is VectorEnvManager
        manager.seed(0)
        manager.launch()
        assert type(manager.simulator.unwrapped).__name__ == "CartPoleVectorEnv"
        infos = [manager.act(np.ones((5, 1), np.int64), list(range(5))).infos for _ in range(3)]
        assert [(info["terminated"], info["truncated"]) for info in infos[2]] == [(False, True)] * 5
        assert infos[2][4]["eval_episode_return"] == 3.0


@pytest.mark.parametrize("mode", ["sync", "async", None])
def test_single_envs_with_wrappers_step_as_those_of_other_managers(mode):
    cfg = EasyDict(env_id="CartPole-v1", wrappers=[(gymnasium.wrappers.TimeLimit, {"max_episode_steps": 5})])
    env = gymnasium.wrappers.TimeLimit(gymnasium.make("CartPole-v1"), 5)
    with VectorEnvManager({"vectorization_mode": mode}, [partial(GymnasiumEnv, cfg=cfg)] * 2) as manager:
        manager.seed([4, 6])
        manager.launch()
        obs, _ = env.reset(seed=6)
        for t in range(12):
            np.testing.assert_array_equal(manager.ready_obs[1], obs)
            timesteps = manager.step({0: 0, 1: t % 2})
            obs, _, terminated, truncated, _ = env.step(t % 2)
            np.testing.assert_array_equal(timesteps[1].obs, obs)
            assert timesteps[1].info["truncated"] is truncated
            if terminated or truncated:
                obs, _ = env.reset()


@pytest.mark.parametrize(
    "cfg, env_cfg, text",
    [
        ({}, None, "give one of env_id and env"),
        (
            {},
            {"env_id": "CartPole-v1", "act_bins": 3},
            "env.act_bins has no meaning for the env manager vector_env",
        ),
        ({"vectorization_mode": "vector_entry_point"}, {"env_id": "CartPole-v1", "wrappers": [str]}, "no wrappers"),
        ({"vector_kwargs": {"copy": False}}, {"env_id": "CartPole-v1"}, "vector_kwargs have no meaning"),
        ({"vectorization_mode": "fast"}, {"env_id": "CartPole-v1"}, "vectorization_mode = 'fast'"),
        ({"vector_env": lambda num_envs: 3}, None, "gave 3, which is not a gymnasium.vector.VectorEnv of 1 envs"),
        ({"vector_env": lambda num_envs: 3}, {"wrappers": [str]}, "env.wrappers has no meaning"),
    ],
)
def test_a_config_that_a_vector_env_cannot_follow_is_refused(cfg, env_cfg, text):
    env_fn = None if env_cfg is None else [partial(GymnasiumEnv, cfg=env_cfg)]
    with pytest.raises(ConfigError, match=text):
        VectorEnvManager({"env_num": 1, **cfg}, env_fn)


def test_a_vector_env_that_does_not_say_when_it_resets_needs_a_setting():
    def make(num_envs):
        vector = CountingVectorEnv(num_envs, "SameStep", (2,))
        vector.metadata = {}
        return vector

    with pytest.raises(ConfigError):
        VectorEnvManager({"vector_env": make, "env_num": 1})
    with VectorEnvManager({"vector_env": make, "env_num": 1, "autoreset_mode": "SameStep"}) as manager:
        manager.launch()
        manager.step({0: 1})
        assert manager.step({0: 1})[0].obs.tolist() == [0, 0, 2, 2]


def test_terminal_observations_that_are_missing_are_an_error():
    with (
        counting("NextStep", lengths=(1, 5), autoreset_mode="SameStep") as manager,
        pytest.raises(ValueError, match=r"envs \[0\] .*final_obs"),
    ):
        manager.step({0: 1, 1: 1})


def test_a_state_keeps_counts_and_begins_new_episodes():
    with counting(lengths=(9, 9)) as manager, counting(lengths=(9, 9)) as other:
        manager.step({0: 1, 1: 1})
        problems = other.load_state_dict(manager.state_dict())
        assert problems == ["envs 0, 1: a vector env saves no states of envs; its running episode is dropped"]
        assert problems == [f"envs 0, 1: {manager.why_inexact}"]
        assert (other.episodes[[0, 1]] > 1).all()
        assert [obs[2] for obs in other.ready_obs.values()] == [0, 0]


@pytest.mark.parametrize("mode", MODES)
def test_a_collector_gets_every_transition_once_and_none_across_episodes(mode):
    cfg = {"lengths": (3, 1, 4, 9), "mode": mode, "limit": 5, "actions": gymnasium.spaces.Discrete(10**6)}
    manager = VectorEnvManager({"vector_env": CountingVectorEnv, "kwargs": cfg, "env_num": 4})
    collector = collector_over(manager, n_sample=40)
    found = collected(collector)
    collector.close()
    assert found == {i: episodes(length, len(found[i])) for i, length in enumerate((3, 1, 4, 5))}
    assert min(map(len, found.values())) >= 20


def test_a_serial_run_trains_on_the_vector_env_of_cartpole(tmp_path):
    main, create = copy.deepcopy(cartpole_dqn_config), copy.deepcopy(cartpole_dqn_create_config)
    main.exp_name, create.env_manager.type = "exp", "vector_env"
    main.env.update(collector_env_num=4, evaluator_env_num=2, n_evaluator_episode=3)
    main.policy.collect.n_sample = 32
    assert serial_pipeline([main, create], seed=0, max_train_iter=20) is not None
    assert (tmp_path / "exp" / "ckpt" / "ckpt_best.pth.tar").exists()
