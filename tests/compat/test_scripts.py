"""Training scripts with a loop of their own: envs from lambdas, own hooks, videos, seeds, attributes of modes."""

import logging

import pytest
import torch
from easydict import EasyDict
from tensorboardX import SummaryWriter
from torch import nn

from ding.config import compile_config
from ding.entry import serial_pipeline, serial_pipeline_onpolicy
from ding.envs import BaseEnvManager, SyncSubprocessEnvManager
from ding.model import DQN, MAVAC
from ding.policy import DQNPolicy
from ding.rl_utils import get_epsilon_greedy_fn
from ding.torch_utils import Flatten
from ding.utils import MODEL_REGISTRY, POLICY_REGISTRY, set_pkg_seed
from ding.worker import AdvancedReplayBuffer, BaseLearner, InteractionSerialEvaluator, SampleSerialCollector
from ding.worker.learner import LearnerHook
from tests.compat.search_library import train_search
from tests.compat.team_envs import TeamEnv
from tests.compat.test_search_library import config_pair as search_pair
from tests.entry.fakes import TinyEnv, pair


class Recorder(TinyEnv):
    """Notes where it shall save videos, by env."""

    paths: list[str] = []

    def enable_save_replay(self, replay_path=None):
        self.paths.append(replay_path)


class NoteIterations(LearnerHook):
    """Notes after which iterations it was called."""

    def __init__(self):
        super().__init__(name="note_iterations", priority=30, position="after_iter")
        self.seen = []

    def __call__(self, engine):
        self.seen.append(engine.last_iter.val)


def compiled():
    main, _ = pair(other={"eps": {"type": "exp", "start": 0.9, "end": 0.1, "decay": 100}})
    main.exp_name = "script"
    return compile_config(
        main,
        BaseEnvManager,
        DQNPolicy,
        BaseLearner,
        SampleSerialCollector,
        InteractionSerialEvaluator,
        AdvancedReplayBuffer,
        save_cfg=True,
    )


@pytest.mark.guarantees("interfaces")
@pytest.mark.parametrize("manager", [BaseEnvManager, SyncSubprocessEnvManager])
def test_a_script_with_its_own_loop_trains(manager, monkeypatch):
    monkeypatch.setattr(Recorder, "paths", [])
    cfg = compiled()
    env_cfg = EasyDict(length=5)
    manager_cfg = EasyDict({**manager.default_config(), **cfg.env.manager, "shared_memory": False})
    collector_env = manager(env_fn=[lambda: Recorder(env_cfg) for _ in range(2)], cfg=manager_cfg)
    evaluator_env = BaseEnvManager(env_fn=[lambda: Recorder(env_cfg) for _ in range(2)], cfg=cfg.env.manager)
    collector_env.seed(0)
    evaluator_env.seed(0, dynamic_seed=False)
    set_pkg_seed(0, use_cuda=cfg.policy.cuda)

    policy = DQNPolicy(cfg.policy, model=DQN(**cfg.policy.model))
    logger = SummaryWriter(f"./{cfg.exp_name}/log/serial")
    learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, logger, exp_name=cfg.exp_name)
    hook = NoteIterations()
    learner.register_hook(hook)
    workers = dict(tb_logger=logger, exp_name=cfg.exp_name)
    collector = SampleSerialCollector(cfg.policy.collect.collector, collector_env, policy.collect_mode, **workers)
    evaluator = InteractionSerialEvaluator(cfg.policy.eval.evaluator, evaluator_env, policy.eval_mode, **workers)
    buffer = AdvancedReplayBuffer(cfg.policy.other.replay_buffer, **workers)
    eps_cfg = cfg.policy.other.eps
    epsilon_greedy = get_epsilon_greedy_fn(eps_cfg.start, eps_cfg.end, eps_cfg.decay, eps_cfg.type)
    assert policy.collect_mode.get_attribute("cfg").collect.n_sample == 8

    while learner.train_iter < 6:
        if evaluator.should_eval(learner.train_iter):
            stop, _ = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
            assert not stop
        eps = epsilon_greedy(collector.envstep)
        new_data = collector.collect(train_iter=learner.train_iter, policy_kwargs={"eps": eps})
        buffer.push(new_data, cur_collector_envstep=collector.envstep)
        for _ in range(cfg.policy.learn.update_per_collect):
            train_data = buffer.sample(learner.policy.get_attribute("batch_size"), learner.train_iter)
            learner.train(train_data, collector.envstep)
    assert hook.seen == [0, 1, 2, 3, 4, 5]
    assert buffer.count() == 16 and collector.envstep >= 16

    recorded_env = BaseEnvManager(env_fn=[lambda: Recorder(env_cfg) for _ in range(2)], cfg=cfg.env.manager)
    recorded_env.seed(0, dynamic_seed=False)
    recorded_env.enable_save_replay("./video")
    recorded = InteractionSerialEvaluator(cfg.policy.eval.evaluator, recorded_env, policy.eval_mode, **workers)
    recorded.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
    assert len(Recorder.paths) == 2 and all("video" in path for path in Recorder.paths)
    for worker in (collector, evaluator, recorded, learner):
        worker.close()


# An env package in the manner of an arcade game, with wrappers by their earlier names, trains.


@MODEL_REGISTRY.register("compat_frame_net")
class FrameNet(nn.Module):
    """Q values [B, N] of frames [B, 2, 8, 8]."""

    def __init__(self, obs_shape, action_shape, encoder_hidden_size_list):
        super().__init__()
        (width,) = encoder_hidden_size_list
        size = (obs_shape[1] - 2) * (obs_shape[2] - 2)
        self.main = nn.Sequential(
            nn.Conv2d(obs_shape[0], width, 3), nn.ReLU(), Flatten(), nn.Linear(width * size, action_shape)
        )

    def forward(self, obs):
        assert obs.dtype == torch.float32 and float(obs.max()) <= 1
        return {"logit": self.main(obs)}


@POLICY_REGISTRY.register("compat_clipped_dqn")
class ClippedDQNPolicy(DQNPolicy):
    """Overrides one method: rewards are clipped again before learning."""

    batches = 0

    def _forward_learn(self, data):
        self.batches += 1
        assert self._cuda is False and self._gamma == 0.9
        return super()._forward_learn([{**item, "reward": item["reward"].clamp(-1, 1)} for item in data])


def config_pair():
    main = EasyDict(
        exp_name="arcade",
        env=dict(env_id="Catch-v0", collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1, frame_stack=2),
        policy=dict(
            cuda=False,
            discount_factor=0.9,
            model=dict(
                type="compat_frame_net",
                import_names=["tests.compat.test_scripts"],
                obs_shape=[2, 8, 8],
                action_shape=3,
                encoder_hidden_size_list=[3],
            ),
            learn=dict(update_per_collect=2, batch_size=4),
            collect=dict(n_sample=8),
            other=dict(eps=dict(type="exp", start=1.0, end=0.05, decay=100)),
        ),
    )
    create = EasyDict(
        env=dict(type="compat_arcade", import_names=["tests.compat.arcade_envs"]),
        env_manager=dict(type="base"),
        policy=dict(type="compat_clipped_dqn", import_names=["tests.compat.test_scripts"]),
    )
    return main, create


def test_dqn_trains_on_frames_with_a_model_and_a_policy_of_the_program(tmp_path):
    policy = serial_pipeline(config_pair(), seed=0, max_train_iter=4)
    assert isinstance(policy, ClippedDQNPolicy) and policy._model.main[0].out_channels == 3
    assert policy.batches == 4
    assert (tmp_path / "arcade" / "ckpt" / "iteration_4.pth.tar").is_file()


# Configs that carry keys that nobody reads, or that only the program reads, train as without them.


# Keys of published configs, each with the key that the warning names, if any; None if there is no warning, since the
# env may read any key, and a value that is in effect anyway misleads nobody.
UNREAD = {
    "policy.model_path": (None, "policy.collect.model_path"),
    "policy.kappa": (1.0, ""),
    "policy.eval_freq": (100, "policy.eval.evaluator.eval_freq"),
    "policy.learn.data_path": ("./expert/data.pkl", "policy.collect.data_path"),
    "policy.learn.multi_gpu": (False, None),
    "policy.learn.nstep": (3, "policy.nstep"),
    "policy.learn.discount_factor": (0.5, "policy.discount_factor"),
    "policy.collect.noise_sigma": (0.1, ""),
    "env.flate_observation": (True, None),
    "wandb": (EasyDict(project="mine"), ""),
}


def carrying_unread_keys(config):
    main, create = config
    for path, (value, _) in UNREAD.items():
        *sections, key = path.split(".")
        section = main
        for name in sections:
            section = section[name]
        assert key not in section
        section[key] = value
    return main, create


def test_keys_that_nobody_reads_change_nothing_but_are_told_once(caplog):
    plain = serial_pipeline(pair(), seed=0, max_train_iter=3)._model.state_dict()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        carrying = serial_pipeline(carrying_unread_keys(pair()), seed=0, max_train_iter=3)._model.state_dict()
    assert all(torch.equal(plain[name], carrying[name]) for name in plain)
    told = sorted(record.getMessage() for record in caplog.records if "config key" in record.getMessage())
    expected = sorted((path, hint) for path, (_, hint) in UNREAD.items() if hint is not None)
    assert len(told) == len(expected)
    assert all(path in line and hint in line for line, (path, hint) in zip(told, expected, strict=True))


def test_the_entry_of_a_library_reads_keys_of_its_own(tmp_path):
    main, create = search_pair(model_path=None, use_wandb=False, learn=dict(data_path="here"), eval_freq=2)
    _, learner, collector, _ = train_search((main, create), max_train_iter=3, model_path=main.policy.model_path)
    saved = sorted(path.name for path in (tmp_path / "search_seed0" / "ckpt").glob("iteration*"))
    assert learner.train_iter == 3 and saved == [f"iteration_{i}.pth.tar" for i in (0, 2, 3)]
    collector.close()


# Envs with several agents, whose observations are dicts, train with one policy for all agents.


AGENTS = 3


def team_configs(policy_type, model, manager="base", **policy):
    main = EasyDict(
        exp_name="team",
        env=dict(
            env_family="lights", n_agent=AGENTS, max_cycles=4, agent_specific_global_state=True,
            collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=100,
        ),
        policy=dict(cuda=False, model=model, **policy),
    )  # fmt: skip
    create = EasyDict(
        env=dict(type="compat_team", import_names=["tests.compat.team_envs"]),
        env_manager=dict(type=manager),
        policy=dict(type=policy_type),
    )
    return main, create


@pytest.fixture
def results(monkeypatch):
    """What the learner of a run in a folder of its own returned."""
    seen, train = [], BaseLearner.train

    def noting(self, *args, **kwargs):
        results = train(self, *args, **kwargs)
        seen.extend(results)
        return results

    monkeypatch.setattr(BaseLearner, "train", noting)
    return seen


@pytest.mark.parametrize("manager", ["base", "subprocess"])
def test_ppo_trains_a_team_with_a_mask_of_legal_actions(manager, results):
    config = team_configs(
        "ppo",
        dict(
            agent_num=AGENTS, agent_obs_shape=2, global_obs_shape=2 * AGENTS + 1, action_shape=2,
            action_space="discrete", actor_head_hidden_size=8, critic_head_hidden_size=8,
        ),
        manager,
        multi_agent=True,
        action_space="discrete",
        learn=dict(epoch_per_collect=1, batch_size=4, value_norm=True, adv_norm=False),
        collect=dict(n_sample=8, unroll_len=1, env_num=2),
    )  # fmt: skip
    policy = serial_pipeline_onpolicy(config, seed=0, max_train_iter=4)
    assert isinstance(policy._model, MAVAC) and len(results) >= 4
    assert all(abs(result["total_loss"]) < 100 for result in results)
    obs = {env_id: TeamEnv(EasyDict(n_agent=AGENTS, max_cycles=4)).reset() for env_id in range(2)}
    output = policy.eval_mode.forward(obs)
    assert all(output[i]["action"].shape == (AGENTS,) for i in obs)
    assert all((output[i]["action"] <= torch.as_tensor(obs[i]["action_mask"][:, 1])).all() for i in obs)
