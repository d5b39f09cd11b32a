import os
import pickle

import numpy as np
import pytest
import torch

from ding.entry import Training, eval, load_policy, serial_entry_offline, serial_pipeline_bc, serial_pipeline_offline
from ding.envs.env_manager.block import stacked
from ding.policy.dqn import DQNPolicy
from ding.utils.config_helper import ConfigError
from ding.utils.data.dataset import naive_save, npz_save
from ding.utils.registry_factory import POLICY_REGISTRY
from tests.entry.fakes import TinyEnv, demonstrations, evaluations, pair, setting

SEEN = []


@pytest.fixture(autouse=True)
def watched_policy():
    SEEN.clear()

    @POLICY_REGISTRY.register("entry_watched")
    class WatchedPolicy(DQNPolicy):
        """DQN that notes the observations it learns from."""

        def _forward_learn(self, data):
            SEEN.append([int(row["obs"][0]) for row in list(data)])
            return super()._forward_learn(data)

    yield
    POLICY_REGISTRY.pop("entry_watched")


def config(epochs=2, **more):
    main, create = pair(**more)
    naive_save(demonstrations(), "demos.pkl")
    main.policy.learn.train_epoch = epochs
    main.policy.collect.update(data_type="naive", data_path="demos.pkl")
    create.policy.type = "entry_watched"
    return main, create


def test_each_epoch_goes_through_the_data_once_in_another_order():
    policy, stop = serial_pipeline_offline(config(), env_setting=setting())
    assert not stop and isinstance(policy, DQNPolicy)
    assert [len(batch) for batch in SEEN] == [4, 4, 2] * 2
    first, second = sum(SEEN[:3], []), sum(SEEN[3:], [])
    assert sorted(first) == sorted(second) == list(range(10)) and first != second


@pytest.mark.differs("ignores `env_setting` in `serial_pipeline_offline`", "uses it")
def test_only_evaluator_envs_are_made():
    serial_pipeline_offline(config(), env_setting=[TinyEnv, None, setting()[2]])
    assert {env.role for env in TinyEnv.made} == {"evaluator"}
    assert all(env.is_closed for env in TinyEnv.made if env.seeds)
    main, create = config()
    del main.env["collector_env_num"]
    serial_pipeline_offline((main, create), max_train_iter=1)


def test_behaviour_cloning_evaluates_as_soon_as_it_is_due():
    main, create = config(epochs=4, eval={"evaluator": {"eval_freq": 5}})
    policy, stop = serial_pipeline_bc((main, create), 0, "demos.pkl", env_setting=setting())
    assert [line["train_iter"] for line in evaluations()] == [0, 5, 10] and not stop and len(SEEN) == 12


def test_behaviour_cloning_reads_the_path_it_is_given_and_stops_at_max_iter():
    main, create = config()
    naive_save(demonstrations(3), "other.pkl")
    main.policy.collect.clear()
    _, stop = serial_pipeline_bc((main, create), 0, "other.pkl", max_iter=2, env_setting=setting())
    assert stop and [sorted(batch) for batch in SEEN] == [[0, 1, 2]] * 2
    assert "data_path" not in main.policy.collect and create.policy.type == "entry_watched"


def test_it_goes_on_with_the_default_data_type():
    def train(max_iter, **more):
        main, create = config()
        main.policy.collect.clear()
        return serial_pipeline_bc((main, create), 0, "demos.pkl", max_iter=max_iter, env_setting=setting(), **more)

    train(2)
    train(4, resume=True)
    resumed, SEEN[:] = SEEN.copy(), []
    os.rename("exp", "first")
    train(4)
    assert resumed == SEEN and len(SEEN) == 4


@pytest.mark.parametrize("cut", [1, 3, 4, 6, 8])
def test_a_run_that_resumes_within_or_between_epochs_has_the_batches_of_a_whole_one(cut, monkeypatch):
    ends = []
    monkeypatch.setattr(DQNPolicy, "end_epoch", lambda self: ends.append(len(SEEN)))
    serial_pipeline_offline(config(3), env_setting=setting(), max_train_iter=cut)
    serial_pipeline_offline(config(3), env_setting=setting(), resume=True)
    resumed, SEEN[:] = SEEN.copy(), []
    os.rename("exp", "first")
    serial_pipeline_offline(config(3), env_setting=setting())
    assert resumed == SEEN and len(SEEN) == 9 and ends == [3, 6, 9] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"obs": torch.zeros(4)}, r"obs of the shape \[4\]"),
        ({"next_obs": torch.zeros(3, 1)}, r"next_obs of the shape \[3, 1\]"),
        ({"reward": None, "next_obs": None}, "no next_obs, reward"),
        ({"action": torch.tensor([0.5])}, r"action \[0.5\]"),
        ({"action": torch.tensor([2])}, "actions of the env are 0 to 1"),
    ],
)
def test_a_data_set_of_another_env_is_refused(changes, message):
    demos = [{**row, **changes} for row in demonstrations()]
    demos = [{key: value for key, value in row.items() if value is not None} for row in demos]
    naive_save(demos, "other.pkl")
    with pytest.raises(ConfigError, match=message):
        serial_pipeline_bc(config(), 0, "other.pkl", max_iter=1, env_setting=setting())


def test_behaviour_cloning_needs_observations_and_actions_only():
    main, create = config()
    create.policy.type, main.policy.model = "bc", {"obs_shape": 3, "action_shape": 2}
    naive_save([{key: row[key] for key in ("obs", "action")} for row in demonstrations()], "other.pkl")
    serial_pipeline_bc((main, create), 0, "other.pkl", max_iter=1, env_setting=setting())


def test_statistics_of_the_observations_are_told_to_the_env():
    npz_save(demonstrations(), "demos")
    main, create = config()
    main.policy.collect.update(data_type="npz", data_path="demos_demos.npz")
    main.env.norm_obs = {"use_norm": True, "offline_stats": {"use_offline_stats": True}}
    serial_pipeline_offline((main, create), max_train_iter=1)
    told = [env.cfg["norm_obs"]["offline_stats"] for env in TinyEnv.made if env.seeds]
    assert len(told) == 2
    assert all(np.allclose(stats["mean"], 4.5) and np.allclose(stats["std"], 8.25**0.5 + 1e-3) for stats in told)


def test_observations_are_scaled_alike_in_the_data_and_in_the_env(monkeypatch):
    data = [{**row, "obs": torch.full((4,), 2.0 + index % 2)} for index, row in enumerate(demonstrations())]
    npz_save([{**row, "next_obs": row["obs"]} for row in data], "demos")
    main, create = config()
    main.env.env_id, create.env.type, create.policy.type = "CartPole-v1", "gymnasium", "dqn"
    main.policy.model.obs_shape = 4
    main.policy.collect.update(data_type="npz", data_path="demos_demos.npz", normalize_states=True)
    main.env.norm_obs = {"use_norm": True, "offline_stats": {"use_offline_stats": True}}
    seen = {"learn": [], "eval": []}
    learn, act = DQNPolicy._forward_learn, DQNPolicy._forward_eval

    def watched_learn(self, data):
        seen["learn"].append(np.array([row["obs"] for row in data]))
        return learn(self, data)

    def watched_eval(self, data):
        seen["eval"] += [np.asarray(obs) for obs in data.values()]
        return act(self, data)

    monkeypatch.setattr(DQNPolicy, "_forward_learn", watched_learn)
    monkeypatch.setattr(DQNPolicy, "_forward_eval", watched_eval)
    serial_pipeline_offline((main, create), max_train_iter=3)
    assert np.allclose(np.abs(np.concatenate(seen["learn"])), 0.5 / 0.501)
    first = np.array(seen["eval"][:2]) * 0.501 + 2.5
    assert np.all(np.abs(first) <= 0.05 + 1e-6)  # where episodes of CartPole begin
    with open("exp/result.pkl", "rb") as file:
        mean_return = pickle.load(file)["eval_value"]
    # The checkpoint knows the scale: these are the episodes of the training's evaluation.
    assert eval((main, create), load_path="exp/ckpt/iteration_3.pth.tar") == mean_return


def test_a_run_on_normalized_data_finds_its_shapes_and_is_used_like_any_other(tmp_path):
    rows = [{**row, "obs": torch.full((4,), 2.0 + index % 2)} for index, row in enumerate(demonstrations())]
    npz_save([{**row, "next_obs": row["obs"]} for row in rows], "demos")
    main, create = config()
    main.env.env_id, create.env.type, create.policy.type = "CartPole-v1", "gymnasium", "dqn"
    main.policy.model.pop("obs_shape")
    main.policy.collect.update(data_type="npz", data_path="demos_demos.npz", normalize_states=True)
    main.env.norm_obs = {"use_norm": True, "offline_stats": {"use_offline_stats": True}}
    policy, _ = serial_pipeline_offline((main, create), max_train_iter=3)
    training, obs = Training.load("exp"), np.full((2, 4), 2.0, np.float32)
    scaled = {i: torch.from_numpy((row - 2.5) / 0.501).float() for i, row in enumerate(obs)}
    expected = [int(out["action"]) for out in policy.eval_mode.forward(scaled).values()]
    assert np.ravel(training.predict(obs)).tolist() == expected
    with load_policy("exp") as trained:
        scaled_again = trained.normalization.scaled(stacked(list(obs))).data
    np.testing.assert_allclose(scaled_again, [row.tolist() for row in scaled.values()], rtol=1e-5)


def test_ranks_share_the_batch_and_the_data(monkeypatch):
    parts = []
    for rank in range(2):
        monkeypatch.setattr(serial_entry_offline, "get_world_size", lambda: 2)
        monkeypatch.setattr(serial_entry_offline, "get_rank", lambda rank=rank: rank)
        loader = serial_entry_offline._loader(list(range(12)), 6, torch.Generator().manual_seed(0))
        parts.append(list(loader))
        with pytest.raises(ConfigError, match="batch_size = 1 cannot be shared by 2 ranks"):
            serial_entry_offline._loader(list(range(12)), 1, torch.Generator().manual_seed(0))
    assert [[len(batch) for batch in part] for part in parts] == [[3, 3], [3, 3]]
    assert sorted(item for part in parts for batch in part for item in batch) == list(range(12))
