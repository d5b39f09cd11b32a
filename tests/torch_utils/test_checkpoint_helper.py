import logging
import pickle
import signal

import numpy as np
import pytest
import torch
from torch import nn

from ding.torch_utils import CheckpointHelper, CountVar, auto_checkpoint, build_checkpoint_helper, guard_training
from ding.torch_utils.checkpoint_helper import Interruption, refuse_nan


class Net(nn.Module):
    def __init__(self, width=2, value=1.0):
        super().__init__()
        self.fc = nn.Linear(1, width)
        self.head = nn.Linear(width, 1)
        for parameter in self.parameters():
            nn.init.constant_(parameter, value)


class Stateful:
    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


@pytest.fixture
def helper():
    return build_checkpoint_helper({})


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "new" / "ckpt.pth.tar")


def values(model):
    return {name: value.flatten()[0].item() for name, value in model.state_dict().items()}


def test_count_var_counts():
    counter = CountVar(3)
    counter.add(2)
    assert counter.val == 5
    counter.update(1)
    assert counter.val == 1


def test_all_parts_are_saved_under_their_names_and_restored(helper, path):
    assert isinstance(helper, CheckpointHelper)
    model = Net(value=3.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    helper.save(
        path,
        model,
        optimizer=optimizer,
        last_iter=CountVar(1),
        last_epoch=CountVar(2),
        last_frame=CountVar(3),
        dataset=Stateful({"d": 1}),
        collector_info=Stateful({"c": np.arange(2)}),
    )
    names = ["collector_info", "dataset", "last_epoch", "last_frame", "last_iter", "model", "optimizer"]
    assert sorted(torch.load(path, weights_only=False)) == names
    other, dataset, info = Net(), Stateful(None), Stateful(None)
    counters = [CountVar(0) for _ in range(3)]
    other_optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    helper.load(path, other, other_optimizer, *counters, dataset=dataset, collector_info=info)
    assert set(values(other).values()) == {3.0}
    assert other_optimizer.param_groups[0]["lr"] == 0.5
    assert [counter.val for counter in counters] == [1, 2, 3]
    assert dataset.state == {"d": 1}
    assert info.state["c"].tolist() == [0, 1]


@pytest.mark.differs(
    "restores only `last_iter` from checkpoints, needs it to save an optimizer, and removes every occurrence of a "
    "prefix from names",
    "restores all three counters, needs none, and removes the prefix at the beginning",
)
def test_an_optimizer_can_be_saved_without_counters(helper, path):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    helper.save(path, model, optimizer=optimizer, last_epoch=CountVar(2))
    assert sorted(torch.load(path)) == ["last_epoch", "model", "optimizer"]
    helper.save(path, model, optimizer=optimizer)
    assert sorted(torch.load(path)) == ["model", "optimizer"]


def test_missing_parts_are_logged_and_left(helper, path, caplog):
    helper.save(path, Net())
    counter, dataset = CountVar(9), Stateful("old")
    with caplog.at_level(logging.WARNING, "ding"):
        helper.load(path, Net(), last_iter=counter, dataset=dataset, logger_prefix="[x] ")
    assert (counter.val, dataset.state) == (9, "old")
    assert "[x]" in caplog.text and "no dataset" in caplog.text and "no last_iter" in caplog.text


def test_strict_loading_refuses_another_model(helper, path):
    helper.save(path, Net())
    with pytest.raises(RuntimeError, match="size mismatch"):
        helper.load(path, Net(width=3))


def test_loose_loading_takes_what_matches(helper, path, caplog):
    helper.save(path, Net(value=3.0))
    model = Net(width=3)
    model.extra = nn.Linear(1, 1)
    with caplog.at_level(logging.WARNING, "ding"):
        helper.load(path, model, strict=False)
    loaded = values(model)
    assert (loaded["head.bias"], loaded["fc.weight"], loaded["fc.bias"]) == (3.0, 1.0, 1.0)
    assert "parameter fc.bias" in caplog.text
    assert "parameter extra.bias" in caplog.text


def test_masked_parameters_are_not_loaded(helper, path):
    helper.save(path, Net(value=3.0))
    model = Net()
    helper.load(path, model, state_dict_mask=["fc"])
    assert values(model) == {"fc.weight": 1.0, "fc.bias": 1.0, "head.weight": 3.0, "head.bias": 3.0}


def test_a_prefix_can_be_added_and_removed(helper, path):
    helper.save(path, Net(value=3.0), prefix_op="add", prefix="module.")
    assert next(iter(torch.load(path)["model"])) == "module.fc.weight"
    model = Net()
    helper.load(path, model, prefix_op="remove", prefix="module.")
    assert set(values(model).values()) == {3.0}


def test_wrong_arguments_are_refused(helper, path):
    with pytest.raises(KeyError):
        helper.save(path, Net(), prefix_op="move", prefix="x")
    with pytest.raises(ValueError, match="prefix"):
        helper.save(path, Net(), prefix_op="add")
    helper.save(path, Net())
    with pytest.raises(KeyError):
        helper.load(path, Net(), prefix_op="move", prefix="x")
    with pytest.raises(NotImplementedError):
        helper.load(path, Net(), lr_schduler=object())


class Marker:
    """A class of its own: only code can rebuild its objects."""


@pytest.mark.differs(
    "cannot read checkpoints and files with numpy values on torch >= 2.6, and has no switch to trust a pickle",
    "reads them, and pickles with `trust_pickle=True`",
)
def test_objects_of_other_classes_are_read_on_demand_only(helper, path):
    helper.save(path, Net(), dataset=Stateful(Marker()))
    with pytest.raises(pickle.UnpicklingError, match="trust_pickle"):
        helper.load(path, Net(), dataset=Stateful(None))
    dataset = Stateful(None)
    helper.load(path, Net(), dataset=dataset, trust_pickle=True)
    assert isinstance(dataset.state, Marker)


def test_a_model_or_optimizer_with_nan_is_not_written(helper, path):
    helper.save(path, Net(), last_iter=CountVar(3))
    optimizer = torch.optim.Adam(Net().parameters())
    optimizer.state[optimizer.param_groups[0]["params"][0]] = {"exp_avg": torch.tensor(float("nan"))}
    for model, of_model in ((Net(value=float("nan")), None), (Net(), optimizer)):
        with pytest.raises(FloatingPointError):
            helper.save(path, model, of_model, last_iter=CountVar(4))
    restored, last_iter = Net(value=2.0), CountVar(0)
    helper.load(path, restored, last_iter=last_iter)
    assert last_iter.val == 3 and restored.fc.weight.tolist() == [[1.0], [1.0]]


SIGNALS = [signal.SIGINT, signal.SIGTERM]


def handlers():
    return [signal.getsignal(signum) for signum in SIGNALS]


@pytest.fixture(autouse=True)
def handlers_are_restored():
    before = handlers()
    yield
    assert handlers() == before


class Trainer:
    def __init__(self):
        self.saved = []

    def save_checkpoint(self, name):
        self.saved.append((name, handlers()))

    @auto_checkpoint
    def train(self, work, *, twice=False):
        """Train a bit."""
        return work() if not twice else (work(), work())

    @property
    def saved_names(self):
        return [name for name, _ in self.saved]


def fail():
    raise ZeroDivisionError("of the test")


def test_a_run_that_ends_well_saves_nothing_and_returns_its_result():
    trainer = Trainer()
    assert trainer.train(lambda: 3, twice=True) == (3, 3)
    assert trainer.saved == []


@pytest.mark.differs("swallows exceptions in `auto_checkpoint`, and so in a learner's `start`", "saves and raises them")
def test_an_exception_saves_and_goes_on():
    trainer, before = Trainer(), handlers()
    with pytest.raises(ZeroDivisionError):
        trainer.train(fail)
    assert trainer.saved == [("ckpt_exception.pth.tar", before)]


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_saves_after_leaving_the_block_and_exits_with_130(signum):
    trainer, before, steps = Trainer(), handlers(), []

    def work():
        assert handlers() != before
        try:
            signal.raise_signal(signum)
        finally:
            steps.append(trainer.saved_names)

    with pytest.raises(SystemExit) as exit_info:
        trainer.train(work)
    assert exit_info.value.code == 130
    assert steps == [[]]
    assert trainer.saved == [("ckpt_interrupt.pth.tar", before)]


def test_an_interruption_puts_a_signal_off_until_the_block_asks():
    saved, done, before = [], [], handlers()
    interruption = Interruption()
    with pytest.raises(SystemExit) as exit_info, guard_training(saved.append, interruption):
        interruption.leave_if_interrupted()
        signal.raise_signal(signal.SIGTERM)
        done.append(interruption.signal_name)
        interruption.leave_if_interrupted()
        done.append("left out")
    assert exit_info.value.code == 130 and done == ["SIGTERM"]
    assert saved == ["ckpt_interrupt.pth.tar"] and handlers() == before


def test_a_second_signal_is_not_put_off():
    done = []
    with pytest.raises(SystemExit), guard_training(None, Interruption()):
        signal.raise_signal(signal.SIGTERM)
        done.append("first")
        signal.raise_signal(signal.SIGINT)
        done.append("second")
    assert done == ["first"]


@pytest.mark.parametrize("interruption", [None, Interruption()])
@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_that_is_ignored_stays_ignored(signum, interruption):
    before = signal.signal(signum, signal.SIG_IGN)
    try:
        with guard_training(pytest.fail, interruption):
            signal.raise_signal(signum)
            assert [handler is signal.SIG_IGN for handler in handlers()] == [number == signum for number in SIGNALS]
        assert signal.getsignal(signum) is signal.SIG_IGN
    finally:
        signal.signal(signum, before)


@pytest.mark.parametrize(("work", "error"), [(fail, ZeroDivisionError), (lambda: signal.raise_signal(15), SystemExit)])
def test_a_save_that_fails_is_logged_and_hides_nothing(work, error, caplog):
    def save(name):
        raise KeyError("model")

    with caplog.at_level(logging.ERROR, "ding"), pytest.raises(error), guard_training(save):
        work()
    assert "could not save ckpt_" in caplog.text
    assert "KeyError: 'model'" in caplog.text


NAN = float("nan")


@pytest.mark.parametrize(
    ("state", "path"),
    [
        ({"model": {"a": torch.zeros(2), "b": torch.tensor([0.0, NAN])}}, "model.b"),
        ({"optimizer": {"state": {3: {"exp_avg": torch.tensor(NAN)}}}}, "optimizer.state.3.exp_avg"),
        ({"model": {}, "stats": [(np.zeros(1), np.array([1.0, NAN]))]}, "stats.0.1"),
        ({"model": torch.tensor([complex(0, NAN)])}, "model"),
        ({"model": torch.tensor([NAN], dtype=torch.float16)}, "model"),
    ],
)
def test_state_with_nan_in_a_tensor_is_refused_by_name(state, path):
    with pytest.raises(FloatingPointError, match=path):
        refuse_nan(state, "at train_iter 7")


def test_state_without_nan_in_a_tensor_passes():
    infinite = torch.tensor([float("inf"), -float("inf")])
    refuse_nan({"model": infinite, "best": NAN, "n": torch.zeros(2, dtype=torch.int64), "text": ["nan"], 1: None}, "")


@pytest.mark.parametrize("error", [FloatingPointError("the parameters hold NaN"), OSError(28, "the disk is full")])
def test_a_save_that_refuses_nan_or_finds_no_space_is_told_in_one_line(error, caplog):
    def save(name):
        raise error

    with caplog.at_level(logging.ERROR, "ding"), pytest.raises(ZeroDivisionError), guard_training(save):
        fail()
    assert str(error) in caplog.text
    assert caplog.records[0].exc_info is None


def test_auto_checkpoint_needs_a_method_to_save_with():
    class Careless:
        @auto_checkpoint
        def train(self):
            pytest.fail("must not run")

    with pytest.raises(AssertionError):
        Careless().train()
