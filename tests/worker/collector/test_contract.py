"""Policy, env manager and collector of the library together: what envs do to their arrays changes no sample."""

from functools import partial

import numpy as np
import pytest
import torch
from easydict import EasyDict
from gymnasium.spaces import Box, Discrete

from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep
from ding.envs.env_manager.base_env_manager import BaseEnvManager, BaseEnvManagerV2
from ding.policy.dqn import DQNPolicy
from ding.worker.collector.episode_serial_collector import EpisodeSerialCollector
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import FakeWriter
from tests.policy.test_own_policy import OwnPolicy


class ScribblingEnv(BaseEnv):
    """Counts [env id, episode, step, 0]. With `scribble`, it fills all it has returned with -9 before it goes on."""

    def __init__(self, cfg):
        from gymnasium import spaces

        self.observation_space = spaces.Box(-9, 99, (4,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.reward_space = spaces.Box(-1, 1, (1,), np.float32)
        self._cfg, self._episode, self._returned = cfg, -1, []

    def _give(self, *values):
        for array in self._returned if self._cfg.scribble else ():
            array[:] = -9
        if self._cfg.get("reuse") and self._returned:
            for array, value in zip(self._returned, values, strict=False):
                array[:] = value
            self._returned += [np.array(value, np.float32) for value in values[len(self._returned) :]]
        else:
            self._returned = [np.array(value, np.float32) for value in values]
        return self._returned

    def _obs(self):
        return [self._cfg.env_id, self._episode, self._step, 0]

    def reset(self):
        self._episode, self._step = self._episode + 1, 0
        return self._give(self._obs())[0]

    def step(self, action):
        assert action.shape == (1,) and action.dtype == np.int64
        self._step += 1
        obs, reward = self._give(self._obs(), [self._step])
        action[:] = -9
        done = self._step >= self._cfg.length
        info = {"eval_episode_return": float(self._step)} if done else {}
        return BaseEnvTimestep(obs, reward, done, info)

    def seed(self, seed, dynamic_seed=True):
        self._seed = seed

    def close(self):
        self._returned = []

    def __repr__(self):
        return "ScribblingEnv"


def policy_of(cls, nstep):
    cfg = cls.default_config()
    cfg.model = EasyDict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[8, 8])
    cfg.nstep, cfg.collect.n_sample = nstep, 9
    torch.manual_seed(0)
    return cls(cfg, enable_field=["collect"])


def collected(scribble, cls=DQNPolicy, nstep=1):
    np.random.seed(0)
    cfgs = [EasyDict(env_id=i, length=3 + i, scribble=scribble) for i in range(3)]
    envs = BaseEnvManager([partial(ScribblingEnv, cfg) for cfg in cfgs], BaseEnvManager.default_config())
    policy = policy_of(cls, nstep)
    collector = SampleSerialCollector(
        SampleSerialCollector.default_config(), envs, policy.collect_mode, FakeWriter(), "exp"
    )
    samples = [sample for _ in range(6) for sample in collector.collect(policy_kwargs={"eps": 0.5})]
    collector.close()
    return samples


def plain(samples):
    return [{k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in sample.items()} for sample in samples]


@pytest.mark.guarantees("data")
def test_an_env_that_scribbles_on_its_arrays_changes_no_sample():
    for nstep in (1, 2):
        assert plain(collected(True, nstep=nstep)) == plain(collected(False, nstep=nstep))


@pytest.mark.guarantees("data")
def test_samples_are_whole_steps_of_their_env():
    for sample in plain(collected(True)):
        env_id, episode, step, _ = sample["obs"]
        assert sample["next_obs"] == [env_id, episode, step + 1, 0] and sample["reward"] == [step + 1]
        assert sample["done"] == (step + 1 >= 3 + env_id) and sample["action"] in ([0], [1])


@pytest.mark.guarantees("overrides")
@pytest.mark.parametrize("method", ["_forward_collect", "_act_collect"])
def test_a_forward_of_ones_own_may_replace_layers(method):
    def act(self, *args, **kwargs):
        rounds.append(len(rounds) % 2)
        for layer in [layer for layer in self._model.modules() if getattr(layer, "out_features", 0) == 2]:
            layer.weight = torch.nn.Parameter(torch.zeros_like(layer.weight))
            layer.bias = torch.nn.Parameter(torch.tensor([1.0 - rounds[-1], rounds[-1]]))
        return getattr(super(Replacing, self), method)(*args, **kwargs)

    rounds: list[int] = []
    Replacing = type("Replacing", (DQNPolicy,), {method: act})
    cfg = EasyDict(env_id=0, length=9, scribble=False)
    envs = BaseEnvManager([partial(ScribblingEnv, cfg)], BaseEnvManager.default_config())
    mode = policy_of(Replacing, 1).collect_mode
    collector = SampleSerialCollector(SampleSerialCollector.default_config(), envs, mode, FakeWriter(), "exp")
    assert [sample["action"].item() for sample in collector.collect(6, policy_kwargs={"eps": 0.0})] == rounds[:6]
    collector.close()


@pytest.mark.guarantees("one-owner")
@pytest.mark.differs(
    "continues unfinished fragments, episode statistics and recurrent states after somebody else has reset the envs",
    "ends them at the reset",
)
def test_a_reset_by_somebody_else_between_collects_begins_new_fragments():
    for cls in (DQNPolicy, asked_policy()):
        cfgs = [EasyDict(env_id=i, length=50, scribble=True, reuse=True) for i in range(3)]
        envs = BaseEnvManager([partial(ScribblingEnv, cfg) for cfg in cfgs], BaseEnvManager.default_config())
        collector = SampleSerialCollector(
            SampleSerialCollector.default_config(), envs, policy_of(cls, 2).collect_mode, FakeWriter(), "exp"
        )
        collector.collect(4, policy_kwargs={"eps": 0.5}, drop_extra=False)
        envs.reset({1: None})
        for sample in plain(collector.collect(30, policy_kwargs={"eps": 0.5})):
            assert sample["next_obs"][:2] == sample["obs"][:2]
            assert sample["next_obs"][2] - sample["obs"][2] in (1, 2)
        collector.close()


def asked_policy():
    class Asked(DQNPolicy):
        def _process_transition(self, obs, policy_output, timestep):
            return {**super()._process_transition(obs, policy_output, timestep)}

    return Asked


@pytest.mark.guarantees("overrides")
def test_a_policy_with_a_transition_of_its_own_gets_the_same_samples():
    class Own(DQNPolicy):
        _process_transition = OwnPolicy._process_transition

    for nstep in (1, 3):
        assert plain(collected(True, Own, nstep)) == plain(collected(True, nstep=nstep))


@pytest.mark.differs(
    "fails inside the first round, at `.items()`, with `env_manager.type = 'base_v2'` or `'subprocess_v2'` in a "
    "pipeline",
    "refuses these types at once and names those to use",
)
@pytest.mark.parametrize("worker", [SampleSerialCollector, EpisodeSerialCollector, InteractionSerialEvaluator])
def test_a_manager_that_stacks_what_envs_return_is_refused_by_name(worker):
    envs = BaseEnvManagerV2(
        [partial(ScribblingEnv, EasyDict(env_id=0, length=3, scribble=False))], BaseEnvManagerV2.default_config()
    )
    cfg = EasyDict({**worker.default_config(), **({"n_episode": 1} if "Evaluator" in worker.__name__ else {})})
    with pytest.raises(TypeError, match="_v2"):
        worker(cfg, envs, policy_of(DQNPolicy, 1).collect_mode, FakeWriter(), "exp")


# Rounds that are checked and reported together, when the samples of a collect may be complete.


class Shared(BaseEnv):
    """Shows (env, episode, step), and writes into the same info at each step; its lengths are those of its episodes."""

    observation_space, action_space, reward_space = Box(-9, 99, (3,)), Discrete(2), Box(-9, 9, (1,))

    def __init__(self, number, lengths, wrong=None):
        self._number, self._lengths, self._wrong = number, lengths, wrong
        self._episode, self._info = -1, {}

    def reset(self):
        self._episode, self._step = self._episode + 1, 0
        return self._obs()

    def step(self, action):
        self._step += 1
        self._info["eval_episode_return"] = float(10 * self._number + self._step)
        done = self._step == self._lengths[self._episode % len(self._lengths)]
        return BaseEnvTimestep(self._obs(), np.ones(1, np.float32), done, self._info)

    def _obs(self):
        obs = np.array([self._number, self._episode, self._step], np.float32)
        return obs * np.nan if (self._episode, self._step) == self._wrong else obs

    def seed(self, seed, dynamic_seed=True): ...

    def close(self): ...

    def __repr__(self):
        return "Shared"


def collecting(*envs, n_sample, tb=None):
    cfg = DQNPolicy.default_config()
    cfg.model = EasyDict(obs_shape=3, action_shape=2, encoder_hidden_size_list=[8])
    cfg.collect.n_sample, cfg.nstep = n_sample, 1
    torch.manual_seed(0)
    policy = DQNPolicy(cfg, enable_field=["collect"])
    collector_cfg = {**SampleSerialCollector.default_config(), "collect_print_freq": 1}
    manager = BaseEnvManager([lambda env=env: env for env in envs])
    return SampleSerialCollector(EasyDict(collector_cfg), manager, policy.collect_mode, tb or FakeWriter(), "exp")


def collect(collector, *args):
    return collector.collect(*args, policy_kwargs={"eps": 0.0})


def steps_of(samples):
    return [tuple(int(number) for number in sample["next_obs"]) for sample in samples]


def test_an_observation_that_is_not_finite_ends_a_collect_of_which_the_rounds_before_count():
    collector = collecting(Shared(0, [2]), Shared(1, [9], wrong=(0, 4)), n_sample=40)
    with pytest.raises(FloatingPointError):
        collect(collector)
    assert collector._counter.steps == 6 and collector._statistics.finished == 1
    collector._env.reset({1: None})
    samples = collect(collector)
    assert steps_of(samples)[:2] == [(0, 0, 1), (0, 0, 2)] and len(samples) == 40
    assert not {(0, 1, 1), (1, 0, 1), (1, 0, 3)} & set(steps_of(samples))  # they have a gap


def test_the_returns_and_lengths_are_those_of_each_end_of_an_env_whose_info_is_one_dict():
    tb = FakeWriter()
    collector = collecting(Shared(0, [1, 3]), Shared(1, [2]), n_sample=24, tb=tb)
    collect(collector)
    ends = [(episode["reward"], episode["step"]) for episode in collector._statistics.latest]
    assert ends[:6] == [(1.0, 1), (12.0, 2), (3.0, 3), (12.0, 2), (1.0, 1), (12.0, 2)]
    assert [episode["train_sample"] for episode in collector._statistics.latest] == [step for _, step in ends]
