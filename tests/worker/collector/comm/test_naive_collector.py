"""The stand-in for a collector."""

import pytest
import torch

from ding.utils.data.plain_columns import from_plain
from ding.worker.collector import NaiveCollector
from ding.worker.learner.comm.chunk_source import ChunkReader
from ding.worker.transport.http_transport import HttpConnector
from ding.worker.transport.stores import FolderSampleStore
from ding.worker.transport.transport import TaskFailed
from tests.worker.collector.parallel_fakes import DEADLINE_S
from tests.worker.transport.sites import read_sample

INFO = {"task_id": "t", "buffer_id": "b"}


@pytest.fixture
def run():
    with NaiveCollector("127.0.0.1", 0, prefix="PRE") as slave:
        connector = HttpConnector("127.0.0.1", 0)
        connector.start()
        client = connector.client("naive", "127.0.0.1", slave.port)
        client.connect(DEADLINE_S)
        yield lambda name, **content: client.run({"name": name, **content}, DEADLINE_S)
        connector.close()


def test_it_has_resources(run):
    assert run("resource") == {"cpu": "20", "gpu": "1"}


def test_it_sends_19_samples_and_then_says_that_it_is_done(run, own_folder):
    for _ in range(2):  # each task is counted anew
        assert run("collector_start_task", task_info=INFO)["message"] == "collector task has started"
        replies = [run("collector_data_task") for _ in range(20)]
        assert [from_plain(reply["samples"]) for reply in replies[:19]] == [
            [{"data_id": f"./PRE_t_{n}", "unroll_split_begin": 0}] for n in range(1, 20)
        ]
        end = {"collector_done": True, "cur_episode": 1, "cur_step": 314, "cur_sample": 314}
        assert from_plain(replies[19]["samples"]) == [] and replies[19]["infos"] == [end]
    assert sorted(path.name for path in own_folder.iterdir()) == sorted(f"PRE_t_{n}" for n in range(1, 21))


def test_a_learner_can_read_its_samples(run):
    run("collector_start_task", task_info=INFO)
    sample = read_sample(ChunkReader(FolderSampleStore(".")), from_plain(run("collector_data_task")["samples"])[0])
    assert {key: tuple(value.shape) for key, value in sample.items() if isinstance(value, torch.Tensor)} == {
        "obs": (4,),
        "next_obs": (4,),
        "reward": (3,),
        "action": (1,),
        "done": (1,),
    }


def test_it_can_be_closed_and_reports_what_a_commander_reads(run):
    run("collector_start_task", task_info=INFO)
    report = run("collector_close_task")
    averages = {f"avg_{what}_per_{of}": 1.0 for what in ("time", "step") for of in ("episode", "step")}
    assert report == {
        **averages,
        "task_id": "t",
        "eval_flag": False,
        "train_iter": 0,
        "real_episode_count": 1,
        "step_count": 314,
        "sample_count": 0,
        "reward_mean": 0.0,
        "reward_std": 0.0,
        "reward_raw": [0.0],
    }


def test_it_fails_other_tasks(run):
    with pytest.raises(TaskFailed):
        run("learner_start_task")
