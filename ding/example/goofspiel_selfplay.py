"""PPO against itself at Goofspiel, until its play can hardly be exploited.

Run it with `python -m ding.example.goofspiel_selfplay [--seed N] [--cards N]`. One policy plays both sides in
`BattleSampleSerialCollector`, and learns from the samples of both. Entropy regularisation pulls it towards a quantal
response equilibrium (McKelvey and Palfrey, 1995), whose temperature is the entropy weight and falls over the run; the
result is the average of its strategies over time, as in fictitious play (Heinrich and Silver, arXiv:1603.01121),
since the newest strategy circles around the equilibrium. Its exploitability is computed exactly.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from easydict import EasyDict

from ding.envs.env_manager.base_env_manager import BaseEnvManager
from ding.example.goofspiel import VALUE_RANGE, Goofspiel, GoofspielEnv, Strategy, View, exploitability
from ding.policy.ppo import PPOPolicy
from ding.torch_utils.thread_count import threads
from ding.utils.default_helper import deep_merge_dicts, set_pkg_seed
from ding.worker.collector.players import BattleInteractionSerialEvaluator, BattleSampleSerialCollector
from ding.worker.learner.base_learner import BaseLearner

GOAL = 0.05 * VALUE_RANGE
COLLECTIONS = 100
_ENTROPY_WEIGHTS = 0.3, 0.1  # at the first and at the last collection
_LEARNING_RATES = 2e-3, 2e-4
_ENVS = 16


def policy_config(cards: int) -> EasyDict:
    """Return the config of the policy that plays with `cards` cards."""
    own = {
        "action_space": "discrete",
        "model": {
            "obs_shape": 3 * cards + 1,
            "action_shape": cards,
            "encoder_hidden_size_list": [64, 64],
            "actor_head_hidden_size": 64,
            "critic_head_hidden_size": 64,
        },
        # The entropy weight is a temperature in units of the return, so nothing may be rescaled.
        "learn": {"epoch_per_collect": 2, "batch_size": 512, "adv_norm": False, "value_norm": False},
        "collect": {"n_sample": 1024, "discount_factor": 1.0, "gae_lambda": 1.0},
    }
    return EasyDict(deep_merge_dicts(PPOPolicy.default_config(), own))


class StrategyTable:
    """The strategies of a policy in all views, and their average.

    The k-th evaluation has the weight k², so that the average soon forgets the start.
    """

    def __init__(self, game: Goofspiel) -> None:
        self._views = list(game.views())
        self._obs = {
            "observation": torch.stack([torch.from_numpy(game.observation(view)) for view in self._views]),
            "action_mask": torch.stack([torch.from_numpy(game.mask(view)) for view in self._views]),
        }
        self._sum = np.zeros(self._obs["action_mask"].shape)
        self._readings = 0

    def read(self, policy: PPOPolicy) -> Strategy:
        """Return the current strategy, and include it in the average."""
        with torch.no_grad():
            logit = policy._model(self._obs, mode="compute_actor")["logit"].double()
        chances = torch.softmax(logit.masked_fill(self._obs["action_mask"] == 0, -torch.inf), dim=-1).numpy()
        self._readings += 1
        self._sum += self._readings**2 * chances
        return self._as_strategy(chances)

    def average(self) -> Strategy:
        """Return the average strategy."""
        return self._as_strategy(self._sum)

    def _as_strategy(self, table: np.ndarray) -> dict[View, np.ndarray]:
        rows = {view: row[[card - 1 for card in view.own]] for view, row in zip(self._views, table, strict=True)}
        return {view: row / row.sum() for view, row in rows.items()}


class UniformPlayer:
    """An eval mode that plays any card of its hand."""

    def forward(self, obs: dict[int, Any], **kwargs: Any) -> dict[int, Any]:
        masks = {env_id: torch.as_tensor(seen["action_mask"]) for env_id, seen in obs.items()}
        return {env_id: {"action": torch.multinomial(mask.float(), 1)} for env_id, mask in masks.items()}

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        """Do nothing: there is no state to reset."""


def train(exp_name: str, seed: int, cards: int, collections: int = COLLECTIONS) -> tuple[float, float]:
    """Train, and return the exploitability of the average strategy and the mean return against a uniform player."""
    set_pkg_seed(seed, use_cuda=False)
    game = Goofspiel(cards)
    policy = PPOPolicy(policy_config(cards), enable_field=["learn", "collect", "eval"])
    table = StrategyTable(game)
    with ExitStack() as stack:
        env = _envs({"cards": cards, "exploring_starts": True}, _ENVS, seed)
        learner = BaseLearner(BaseLearner.default_config(), policy.learn_mode, exp_name=exp_name)
        stack.callback(learner.close)
        collector = BattleSampleSerialCollector(
            BattleSampleSerialCollector.default_config(),
            env,
            [policy.collect_mode] * 2,
            tb_logger=learner.tb_logger,
            exp_name=exp_name,
        )
        stack.callback(collector.close)
        learner.call_hook("before_run")
        for k in range(collections):
            # The temperature falls geometrically, the learning rate linearly.
            progress = k / max(1, collections - 1)
            policy._entropy_weight = _ENTROPY_WEIGHTS[0] * (_ENTROPY_WEIGHTS[1] / _ENTROPY_WEIGHTS[0]) ** progress
            for group in policy._optimizer.param_groups:
                group["lr"] = _LEARNING_RATES[0] + (_LEARNING_RATES[1] - _LEARNING_RATES[0]) * progress
            data, _ = collector.collect(train_iter=learner.train_iter)
            learner.train([sample for samples in data for sample in samples], collector.envstep)
            newest = exploitability(game, [table.read(policy)])
            learner.tb_logger.add_scalar("selfplay/exploitability", newest, collector.envstep)
        learner.call_hook("after_run")
        mean_return = _evaluate(stack, policy, cards, seed, exp_name, learner)
    return exploitability(game, [table.average()]), mean_return


def _envs(cfg: dict[str, Any], number: int, seed: int) -> BaseEnvManager:
    manager = BaseEnvManager([partial(GoofspielEnv, cfg)] * number, BaseEnvManager.default_config())
    manager.seed(seed)
    return manager


def _evaluate(stack: ExitStack, policy: PPOPolicy, cards: int, seed: int, exp_name: str, learner: BaseLearner) -> float:
    """Return the mean return of the newest policy, choosing its most likely cards, against a uniform player."""
    cfg = EasyDict({**BattleInteractionSerialEvaluator.default_config(), "n_episode": 200, "stop_value": VALUE_RANGE})
    evaluator = BattleInteractionSerialEvaluator(
        cfg,
        _envs({"cards": cards}, _ENVS, seed + 1),
        [policy.eval_mode, UniformPlayer()],
        tb_logger=learner.tb_logger,
        exp_name=exp_name,
    )
    stack.callback(evaluator.close)
    _, infos = evaluator.eval(learner.save_checkpoint, learner.train_iter)
    return float(np.mean([info["eval_episode_return"] for info in infos[0]]))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the example, and return the exit status: 0 if the goal was reached, otherwise 1."""
    parser = argparse.ArgumentParser(description="Train PPO against itself at Goofspiel.")
    parser.add_argument("--seed", type=int, default=0, help="of everything random in the run (default 0)")
    parser.add_argument("--cards", type=int, default=3, help="cards of a hand (default %(default)s)")
    parser.add_argument("--collections", type=int, default=COLLECTIONS, help="length of the run (default %(default)s)")
    args = parser.parse_args(argv)
    start = time.perf_counter()
    exp_name = f"goofspiel_selfplay_seed{args.seed}"
    with threads(1):
        exploited, mean_return = train(exp_name, args.seed, args.cards, args.collections)
    is_solved = exploited <= GOAL
    print(
        f"{'solved' if is_solved else 'NOT solved'}: a best answer to the average strategy wins {exploited:.3f} a game "
        f"(goal {GOAL:.3f}, which is 0.05 of the value range); mean return against a uniform player {mean_return:.2f}; "
        f"{time.perf_counter() - start:.1f} s; results are in ./{exp_name}/"
    )
    return 0 if is_solved else 1


if __name__ == "__main__":
    raise SystemExit(main())
