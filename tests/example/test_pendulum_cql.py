"""The example that collects demonstrations and trains on them."""

import os

from ding.example import pendulum_cql, runner
from ding.utils.data.dataset import NpzDataset


def test_an_expert_is_trained_its_steps_are_saved_and_trained_on(monkeypatch, capsys):
    monkeypatch.setattr(pendulum_cql, "COUNT", 300)
    main = pendulum_cql.main_config.__class__(pendulum_cql.main_config)
    main.policy.learn.train_epoch = 1
    main.env.stop_value = 0
    options = {"train": pendulum_cql.collect_and_train, "max_env_step": 1000}
    assert runner.run(main, pendulum_cql.create_config, ["--seed", "3"], **options) == 1
    told = capsys.readouterr()
    assert told.out.startswith("NOT solved: mean return ") and "after 0 env steps, 3 iterations" in told.err
    assert sorted(os.listdir(".")) == ["pendulum_cql_demos.npz", "pendulum_cql_seed3", "pendulum_cql_seed3_expert"]
    assert len(NpzDataset("pendulum_cql_demos.npz")) == 300
