"""A pipeline of one's own that trains on two buffers."""

import shutil

import torch

from ding.entry.experiment import run_pipeline
from ding.entry.serial_entry import ReplayRounds
from tests.entry.fakes import pair, setting, weights


class RewardRounds(ReplayRounds):
    """Rounds whose batches consist of samples of all kinds and of rewarded ones, half of each."""

    def prepare(self, stack):
        super().prepare(stack)
        self.rewarded = self.run.add_buffer(stack, "rewarded", replay_buffer_size=16)
        self.pushed, self.drawn = [], []

    def push(self, data):
        super().push(data)
        self.pushed.append(len(data))
        rewarded = [sample for sample in data if sample["reward"] > 0]
        self.rewarded.push(rewarded, cur_collector_envstep=self.run.envstep)

    def next_batch(self):
        batch = super().next_batch()
        self.drawn += [] if batch is None else [[sample["reward"].item() for sample in batch]]
        return batch

    def shares(self, batch_size):
        return [(self.run.buffer, batch_size // 2), (self.rewarded, batch_size - batch_size // 2)]


def run(rounds=RewardRounds, **how):
    main, create = pair(random_collect_size=20)
    return run_pipeline(rounds, (main, create), env_setting=setting(), **how)


def test_samples_are_pushed_once_random_ones_included_and_batches_are_drawn_from_both():
    made = []
    run(lambda: made.append(RewardRounds()) or made[0], max_train_iter=6)
    (rounds,) = made
    assert rounds.pushed == [20, 8, 8]
    assert len(rounds.drawn) == 6 and all(rewards[2:] == [1.0, 1.0] for rewards in rounds.drawn)


def test_both_buffers_are_resumed():
    straight = weights(run(max_train_iter=12).policy)
    shutil.rmtree("exp")
    run(max_train_iter=6)
    resumed = weights(run(max_train_iter=12, resume=True).policy)
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)
