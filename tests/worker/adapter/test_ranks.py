"""Learners in processes of their own that average their gradients, behind an aggregator."""

import contextlib
import copy
import json
import multiprocessing
import os
import signal
from multiprocessing.connection import wait

import pytest
import torch
import torch.distributed as dist
from easydict import EasyDict

from ding.worker.transport.chunk import encode_chunk, pack_batches
from ding.worker.transport.stores import FolderPolicyStore, FolderSampleStore
from tests.fork_server import start_fork_server
from tests.worker.adapter.doubles import Stage
from tests.worker.learner.comm.test_dqn_learner import BATCH, policy_cfg, trained_at_home, transitions
from tests.worker.learner.comm.workers import entry, task_info

# Interpreters that import torch, and learners that wait for each other, are slow on a busy machine: this is no measure
# of what is proved here, but only ends a test that hangs.
HANGING_S = 600
PATHS = {"path_data": "data", "path_policy": "policy"}


def serve_rank(environment, folder, pipe):
    """What a rank does: it serves learner tasks until it is told to end, and tells its weights."""
    from ding.worker.learner.comm import create_comm_learner

    os.setsid()
    os.environ.update(environment)
    os.chdir(folder)
    torch.set_num_threads(1)
    torch.manual_seed(7)
    cfg = EasyDict(type="flask_fs", host="127.0.0.1", port=0, multi_gpu=True, close_timeout_s=HANGING_S, **PATHS)
    learner = create_comm_learner(cfg)
    learner.start()
    pipe.send(learner.port)
    while pipe.recv() == "weights":
        model = learner._learner.policy.state_dict()["model"]
        pipe.send({key: value.tolist() for key, value in model.items()})
    learner.close()


@pytest.fixture
def ranks(tmp_path):
    """Pipes to two ranks, and their addresses."""
    if not hasattr(os, "fork"):
        pytest.skip("ranks are forked here")
    start_fork_server()
    context = multiprocessing.get_context("forkserver")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    pipes, processes = [], []
    for rank in range(2):
        pipe, end = context.Pipe()
        environment = {**shared, "RANK": str(rank), "WORLD_SIZE": "2"}
        processes.append(context.Process(target=serve_rank, args=(environment, str(tmp_path), end)))
        processes[-1].start()
        pipes.append(pipe)
    try:
        for pipe, process in zip(pipes, processes, strict=True):
            told = wait([pipe, process.sentinel], HANGING_S)
            assert told == [pipe], "a rank has died" if told else "a rank hangs"
        yield pipes, [pipe.recv() for pipe in pipes]
        for pipe in pipes:
            pipe.send("end")
        for process in processes:
            process.join(HANGING_S)
        assert [process.exitcode for process in processes] == [0, 0]
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.join(10)


def weights(pipes):
    for pipe in pipes:
        pipe.send("weights")
    for pipe in pipes:
        assert pipe.poll(HANGING_S)
    return [pipe.recv() for pipe in pipes]


def test_ranks_stay_in_step_and_learn_as_one_learner_from_the_whole_batch(ranks, tmp_path):
    pipes, ports = ranks
    stage = Stage("http")
    samples, policies = FolderSampleStore("data"), FolderPolicyStore("policy", False)
    try:
        addresses = {str(rank): (str(rank), "127.0.0.1", port) for rank, port in enumerate(ports)}
        aggregator, driver = stage.pair(learner=addresses, task_timeout=HANGING_S)
        driver.deadline_s = HANGING_S
        own = policy_cfg()
        own.priority = own.priority_IS_weight = False
        alone = copy.deepcopy(own)
        own.multi_gpu, own.learn.batch_size = True, BATCH // 2
        driver.run("learner_start_task", task_info=json.loads(json.dumps(task_info(policy=own))))
        samples.write("env_uid_1", encode_chunk(transitions(), "lz4"))
        batch = [entry("env_uid_1", index) for index in range(BATCH)]
        assert driver.ask()["batch_size"] == BATCH
        ask_learn(driver, [batch] * 3)
        infos = []
        while len(infos) < 3:
            infos += driver.ask()["infos"]
        one, other = weights(pipes)
        assert one == other
        expected, _ = trained_at_home(alone, batch)
        assert one.keys() == expected.keys()
        for key, value in expected.items():
            assert torch.allclose(torch.tensor(one[key]), value, rtol=1e-3, atol=1e-5), key
        while driver.ask()["batch_num"] < 5:  # until the loaders have asked for as many
            pass
        ask_learn(driver, [batch] * 5)
        report = driver.close()  # in the middle of them
        steps = [info["learner_step"] for info in infos + report["infos"]]
        assert steps == list(range(9)) and report["infos"][-1]["learner_done"] is True
        assert policies.read("policy_task").state["iter"] == 8
    finally:
        stage.close()


def ask_learn(driver, batches):
    driver.run("learner_learn_task", **pack_batches(batches))
