"""Training scripts with a loop of their own: envs from lambdas, own hooks, videos, seeds, attributes of modes."""

import pytest
from easydict import EasyDict
from tensorboardX import SummaryWriter

from ding.config import compile_config
from ding.envs import BaseEnvManager, SyncSubprocessEnvManager
from ding.model import DQN
from ding.policy import DQNPolicy
from ding.rl_utils import get_epsilon_greedy_fn
from ding.utils import set_pkg_seed
from ding.worker import AdvancedReplayBuffer, BaseLearner, InteractionSerialEvaluator, SampleSerialCollector
from ding.worker.learner import LearnerHook
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
