"""`serial_pipeline` and `random_collect` with the collector of whole episodes."""

from types import SimpleNamespace

import numpy as np
import pytest

from ding.config.config import compile_config
from ding.entry.serial_entry import run_serial
from ding.entry.utils import random_collect
from ding.envs.env_manager.base_env_manager import BaseEnvManager
from ding.policy.dqn import DQNPolicy
from ding.utils.registry_factory import SERIAL_COLLECTOR_REGISTRY
from ding.worker import BaseLearner, EpisodeSerialCollector, SampleSerialCollector
from tests.entry.fakes import TinyEnv, pair
from tests.fakes import FakeWriter


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


def test_whole_episodes_for_a_buffer_of_transitions_are_refused():
    with pytest.raises(RuntimeError, match=r"accepts none of the collected data.*get_train_sample"):
        run_serial(episode_pair())


def test_whole_episodes_pass_where_the_buffer_takes_them(monkeypatch):
    main, create = episode_pair()
    create.replay_buffer = {"type": "episode"}
    trained = []
    monkeypatch.setattr(BaseLearner, "train", lambda self, data, envstep: trained.append(data) or self.last_iter.add(1))
    run_serial((main, create), max_train_iter=1)
    (batch,) = trained
    assert all(isinstance(episode, list) for episode in batch) and list(map(len, batch)) == [5] * 4


@SERIAL_COLLECTOR_REGISTRY.register("entry_changing")
class Changing(SampleSerialCollector):
    """Collects what `change` makes of the samples."""

    change = staticmethod(lambda samples: samples)

    def collect(self, *args, **kwargs):
        return type(self).change(super().collect(*args, **kwargs))


def changing_pair():
    main, create = pair()
    create.collector = {"type": "entry_changing"}
    return main, create


@pytest.mark.differs(
    "collects forever if the buffer takes nothing of what is collected",
    "raises an error, at the latest after 100 rounds",
)
def test_rounds_that_bring_nothing_end_the_run(monkeypatch):
    rounds = []
    monkeypatch.setattr(Changing, "change", staticmethod(lambda samples: rounds.append(len(samples)) or []))
    with pytest.raises(RuntimeError, match="accepts none of the collected data"):
        run_serial(changing_pair())
    assert rounds == [8] * 100
