"""What every comm collector has."""

import pytest
from easydict import EasyDict

from ding.utils.registry_factory import COMM_COLLECTOR_REGISTRY
from ding.worker.collector import BaseCommCollector, create_comm_collector
from tests.worker.collector.parallel_fakes import collector_cfg, weights


@COMM_COLLECTOR_REGISTRY.register("own_comm_test", force_overwrite=True)
class Own(BaseCommCollector):
    """Keeps what is sent."""

    def __init__(self, cfg):
        super().__init__(cfg)
        self.sent = []

    def get_policy_update_info(self, path):
        return weights(1)

    def send_metadata(self, metadata):
        self.sent.append(metadata)

    def send_stepdata(self, path, stepdata):
        self.sent.append(path)


def test_a_class_of_ones_own_is_built_by_its_type_and_makes_collectors_that_send_through_it():
    comm = create_comm_collector(EasyDict(type="own_comm_test", import_names=[]))
    collector = comm._create_collector({"collector_cfg": collector_cfg(lengths=(1,), update_policy_second=1000)})
    collector.start()
    collector.close()
    assert comm.sent[0] == f"env_{collector.collector_uid}_0" and comm.sent[2]["collector_done"]


def test_modules_of_the_workers_own_config_may_be_named_by_tasks():
    comm = Own(EasyDict(import_names=["json"]))
    comm._create_collector({"collector_cfg": collector_cfg(import_names=["json"])}).close()
    with pytest.raises(PermissionError, match="csv"):
        comm._create_collector({"collector_cfg": collector_cfg(import_names=["csv"])})


def test_the_seed_of_the_worker_replaces_that_of_the_task_and_without_one_the_task_keeps_its_own():
    assert Own(EasyDict())._create_collector({"collector_cfg": collector_cfg(seed=5)})._cfg.seed == 5
    comm = Own(EasyDict(seed=0))
    seeds = [comm._create_collector({"collector_cfg": collector_cfg(seed=5)})._cfg.seed for _ in range(2)]
    assert 5 not in seeds and seeds[0] != seeds[1] and max(seeds) < 2**31


def test_a_worker_that_is_started_again_goes_on_with_the_seeds_where_the_coordinator_says_that_it_was():
    def seeds(comm, *numbers):
        tasks = [{"collector_cfg": collector_cfg(), **({} if n is None else {"task_number": n})} for n in numbers]
        return [comm._create_collector(task)._cfg.seed for task in tasks]

    one_life = seeds(Own(EasyDict(seed=0)), 0, 1, 2, 3)
    assert len(set(one_life)) == 4
    assert seeds(Own(EasyDict(seed=0)), 2, 3) == one_life[2:]
    # Another coordinator, which counts from the beginning, does not have it play the same again.
    assert seeds(Own(EasyDict(seed=0)), 0, 1, 0, None) == one_life


def test_the_tasks_of_a_worker_share_a_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    comm = Own(EasyDict())
    for _ in range(2):
        comm._create_collector({"collector_id": "collector3", "collector_cfg": collector_cfg()}).close()
    comm._create_collector({"collector_cfg": collector_cfg()}).close()  # a coordinator that names no worker
    [folder] = {path.parent for path in tmp_path.rglob("*_logger.txt")}
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["collector3_logger.txt", f"{comm.collector_uid}_logger.txt"]
    )
    assert (folder / "collector3_logger.txt").read_text().count("config: ") == 2


@pytest.mark.parametrize("name", ["../collector0", "", 3])
def test_a_name_that_leaves_the_folder_of_the_logs_is_refused(name):
    with pytest.raises(ValueError, match="file name"):
        Own(EasyDict())._create_collector({"collector_id": name, "collector_cfg": collector_cfg()})
