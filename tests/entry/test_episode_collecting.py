"""`serial_pipeline` and `random_collect` with the collector of whole episodes."""

from types import SimpleNamespace

import numpy as np
import pytest

from ding.config.compile import compile_config
from ding.entry.serial_entry import run_serial
from ding.entry.utils import random_collect
from ding.envs.env_manager.base_env_manager import BaseEnvManager
from ding.policy.dqn import DQNPolicy
from ding.worker import EpisodeSerialCollector
from tests.entry.fakes import TinyEnv, pair
from tests.fakes import FakeWriter


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    TinyEnv.made.clear()


def episode_pair(**collector):
    main, create = pair(collect={"n_episode": 4, "collector": {"type": "episode", **collector}})
    del main.policy.collect["n_sample"]
    return main, create


class Buffer:
    def push(self, data, cur_collector_envstep):
        self.data, self.envstep = data, cur_collector_envstep


def test_a_run_trains_on_the_samples_of_whole_episodes():
    main, create = episode_pair(get_train_sample=True)
    run = run_serial((main, create), seed=0, max_train_iter=6)
    assert type(run.collector) is EpisodeSerialCollector
    assert run.learner.train_iter == 6 and run.collector.envstep == 2 * 4 * 5


def test_a_run_begins_with_random_episodes():
    main, create = episode_pair(get_train_sample=True)
    main.policy.random_collect_size = 6
    run = run_serial((main, create), seed=0, max_train_iter=3)
    assert run.collector.envstep == (6 + 4) * 5


@pytest.mark.parametrize("with_policy_data", [False, True])
@pytest.mark.parametrize("get_train_sample", [False, True])
@pytest.mark.parametrize("mark", [False, True])
def test_random_episodes_come_whole_or_as_samples(with_policy_data, get_train_sample, mark):
    main, create = episode_pair(get_train_sample=get_train_sample)
    main.policy.random_collect_size = 8
    main.policy.transition_with_policy_data = with_policy_data
    cfg = compile_config(main, auto=True, create_cfg=create, save_cfg=False)
    policy = DQNPolicy(cfg.policy, enable_field=["collect"])
    env = BaseEnvManager([lambda: TinyEnv({"length": 5})] * 2, cfg.env.manager)
    env.seed(0)
    collector = EpisodeSerialCollector(cfg.policy.collect.collector, env, policy.collect_mode, FakeWriter(), "exp")
    commander = SimpleNamespace(step=lambda: {"eps": 0.5})

    def post_process(data):
        for row in data if get_train_sample else [row for episode in data for row in episode]:
            row["marked"] = True
        return data

    buffer = Buffer()
    random_collect(cfg.policy, policy, collector, env, commander, buffer, post_process if mark else None)
    episodes = [buffer.data[i : i + 5] for i in range(0, 40, 5)] if get_train_sample else buffer.data
    assert [[bool(np.all(row["done"])) for row in episode] for episode in episodes] == [[False] * 4 + [True]] * 8
    assert all(("marked" in row) == mark for episode in episodes for row in episode)
    assert buffer.envstep == 0 and collector.envstep == 40
    assert collector._policy == policy.collect_mode
    collector.close()
