"""Tasks of two policies that play against each other, over both kinds of transport."""

from ding.utils.data.plain_columns import from_plain
from tests.worker.collector.battles import whole
from tests.worker.collector.comm.workers import Driver
from tests.worker.collector.marine_fakes import battle_cfg
from tests.worker.collector.parallel_fakes import POLICIES, weights


class BattleDriver(Driver):
    """A `Driver` that starts battles."""

    def start(self, task_id="task", **cfg):
        info = {"task_id": task_id, "buffer_id": "buffer", "collector_cfg": battle_cfg(**cfg)}
        return self.run("collector_start_task", task_info=info)


def begin(site, **changes):
    for path, iteration in (("left", 7), ("right", 3)):
        site.policies.write(path, weights(iteration))
    worker = site.worker(**changes)
    return worker, BattleDriver(site.client(worker))


def test_all_samples_of_both_players_come_whole_and_before_the_end(site):
    worker, driver = begin(site)
    driver.start(lengths=(3, 2), episodes=2, n_sample=2, chunk_size=4, env={"results": {"0": [1, -1]}})
    rows, infos = driver.all()
    samples = [site.reader.sample(row) for row in rows]
    seen = [
        (whole(sample["obs"]), sample["player"], sample["collect_iter"], sample["policy_iter"]) for sample in samples
    ]
    assert sorted(seen) == sorted(
        ([env_id, player, episode, step], player, (7, 3)[player], [7, 3])
        for env_id, length in enumerate((3, 2))
        for player in range(2)
        for episode in range(2)
        for step in range(length)
    )
    assert [info["cur_episode"] for info in infos] == [1, 2, 3, 4]
    report = driver.close()
    assert (report["task_id"], report["sample_count"], report["step_count"], report["train_iter"]) == (
        "task",
        20,
        10,
        7,
    )
    assert report["game_result"] == [["wins", "losses"], ["draws", "draws"]]
    assert report["reward_raw"] == [[1.0, -1.0], [0.0, 0.0]] and worker._collector is None


def test_an_evaluation_reports_its_results(site):
    _, driver = begin(site)
    driver.start(lengths=(2, 1), is_eval=True, env={"results": {"0": [20], "1": [-1]}})
    rows, infos = driver.all()
    assert rows == [] and all(info["eval_flag"] for info in infos)
    report = driver.close()
    assert report["game_result"] == [["wins"], ["losses"]] and report["reward_mean"] == 9.5


def test_new_weights_of_the_one_that_learns_are_taken_up_and_those_of_the_other_are_not(site):
    _, driver = begin(site, queue_size=1)  # so the collector waits for the coordinator at each step
    cfg = {"lengths": (10**6,), "n_sample": 1, "chunk_size": 1, "update_policy_second": 0.001}
    driver.start(flags=(True, False), **cfg)
    driver.ask()
    for path in ("left", "right"):
        site.policies.write(path, weights(9))
    (newest,) = from_plain(driver.ask()["samples"])
    while newest["collect_iter"] != 9:
        (newest,) = from_plain(driver.ask()["samples"])
    assert newest["policy_iter"] == [9, 3] and newest["player"] == 0
    driver.close()
    assert [policy.collect_mode.log.count("load 9") for policy in POLICIES[-2:]] == [1, 0]


def test_modules_named_by_either_policy_are_imported_only_where_the_workers_config_says_so(site):
    _, driver = begin(site)
    result = driver.failure(driver.start, right={"import_names": ["intruder"]})
    assert result["exception"] == "PermissionError" and "the task imports intruder" in result["message"]
