"""A collector and an evaluator over a manager whose envs show [env, episode, step]."""

from collections import defaultdict
from typing import Any

from ding.worker import InteractionSerialEvaluator, SampleSerialCollector
from tests.fakes import FakeWriter, ScriptedPolicy


def collector_over(manager: Any, n_sample: int) -> SampleSerialCollector:
    cfg = SampleSerialCollector.default_config()
    return SampleSerialCollector(cfg, manager, ScriptedPolicy(n_sample=n_sample), FakeWriter(), "exp")


def collected(collector: SampleSerialCollector, collects: int = 3) -> dict[int, list[tuple[int, int, bool]]]:
    """Return (episode, step, done) of the samples of each env; each sample leads to the next step of its episode."""
    found = defaultdict(list)
    for _ in range(collects):
        for sample in collector.collect(drop_extra=False):
            env_id, episode, step = map(int, sample["obs"].tolist()[:3])
            assert sample["next_obs"].tolist()[:3] == [env_id, episode, step + 1]
            found[env_id].append((episode, step, sample["done"]))
    return dict(sorted(found.items()))


def episodes(length: int, steps: int) -> list[tuple[int, int, bool]]:
    """Return what `collected` tells of an env, in so many steps, whose episodes have this length."""
    return [(*divmod(k, length), k % length == length - 1) for k in range(steps)]


def returns_of(manager: Any, n_episode: int, policy: Any = None, evaluations: int = 1) -> list[float]:
    """Return the returns of an evaluation, or of the last of several, in ascending order."""
    cfg = InteractionSerialEvaluator.default_config()
    cfg.update(n_episode=n_episode, stop_value=100)
    evaluator = InteractionSerialEvaluator(cfg, manager, policy or ScriptedPolicy(), FakeWriter(), "exp")
    for _ in range(evaluations):
        _, info = evaluator.eval()
    evaluator.close()
    return sorted(info["eval_episode_return"])
