"""Configs that carry keys that nobody reads, or that only the program reads, train as without them."""

import logging

import torch
from easydict import EasyDict

from ding.entry import serial_pipeline
from tests.compat.search_library import train_search
from tests.compat.test_search_library import config_pair as search_pair
from tests.entry.fakes import pair

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
