"""What a small parallel training is made of: counting envs, a DQN that fails when it is told to, the config triple."""

import ctypes
import hashlib
import os
import signal
import threading

from easydict import EasyDict

from ding.policy.command_mode_policy_instance import DQNCommandModePolicy
from ding.utils.registry_factory import ENV_REGISTRY, POLICY_REGISTRY
from tests.worker.collector.parallel_fakes import TaskEnv

# Every episode of env 0 has 6 steps, of env 1 has 9; a step is worth 1 plus the number of the step in a hundredth.
LENGTHS = [6, 9]


@POLICY_REGISTRY.register("failing_dqn_command")
class FailingDQN(DQNCommandModePolicy):
    """Fails in the forward pass number `fail_at` of the mode `fail_in`, as `fail_how` says.

    'raise' raises, 'kill' kills the process, 'hang' does not come back before `go_on` is set.
    Where `fail_once` is a path, that happens in one process only. With `record_every` a learner writes a file
    `<rank>_<n>` with a checksum of its weights into the folder `record`, after every so many updates.
    """

    config = {
        **DQNCommandModePolicy.default_config(),
        "fail_in": None,
        "fail_at": 5,
        "fail_how": "raise",
        "fail_once": "",
        "record_every": 0,
    }
    _count = _updates = 0
    go_on = threading.Event()

    def _forward_learn(self, data):
        self._fail("learn")
        result = super()._forward_learn(data)
        self._updates += 1
        if self._cfg.record_every and self._updates % self._cfg.record_every == 0:
            self._record()
        return result

    def _record(self):
        weights = b"".join(value.numpy().tobytes() for value in self._model.state_dict().values())
        os.makedirs("record", exist_ok=True)
        with open(f"record/.{self._rank}", "w") as file:
            file.write(hashlib.sha256(weights).hexdigest())
        os.replace(f"record/.{self._rank}", f"record/{self._rank}_{self._updates}")

    def _forward_collect(self, *args, **kwargs):
        self._fail("collect")
        return super()._forward_collect(*args, **kwargs)

    def _fail(self, mode):
        if self._cfg.fail_in != mode:
            return
        self._count += 1
        if self._count == self._cfg.fail_at and self._is_allowed():
            if self._cfg.fail_how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self._cfg.fail_how == "hang":
                self.go_on.wait()
            raise ZeroDivisionError(f"the policy was told to fail in {mode}")

    def _is_allowed(self):
        try:
            if self._cfg.fail_once:
                open(self._cfg.fail_once, "x").close()
        except FileExistsError:
            return False
        return True


@ENV_REGISTRY.register("locking_task")
class LockingEnv(TaskEnv):
    """Holds the interpreter lock in native code, for longer than any test: in one step of one process.

    Then the file `cfg["lock_once"]` has the id of the process.
    """

    def step(self, action):
        try:
            with open(self.cfg["lock_once"], "x") as f:
                f.write(str(os.getpid()))
            ctypes.PyDLL(None).sleep(120)
        except FileExistsError:
            pass
        return super().step(action)


@ENV_REGISTRY.register("spoiling_task")
class SpoilingEnv(TaskEnv):
    """Puts `cfg["spoil_with"]` in the place of every file in the folder `cfg["spoil"]`, at each step.

    Then there is a file `spoiled` in the working directory.
    """

    def step(self, action):
        folder = self.cfg["spoil"]
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if not name.startswith("."):
                with open(os.path.join(folder, name), "wb") as f:
                    f.write(bytes.fromhex(self.cfg["spoil_with"]))
                open("spoiled", "w").close()
        return super().step(action)


@ENV_REGISTRY.register("hanging_task")
class HangingEnv(TaskEnv):
    """The first `cfg["hang_times"]` envs to reach their third step, by files `hangs*`, hang until `go_on` is set."""

    go_on = threading.Event()

    def step(self, action):
        self._seen = getattr(self, "_seen", 0) + 1
        for number in range(self.cfg["hang_times"] if self._seen == 3 else 0):
            try:
                open(f"hangs{number}", "x").close()
            except FileExistsError:
                continue
            self.go_on.wait()
        return super().step(action)


def triple(comm="flask_fs", env_type="counting_task", system=None, **changes):
    """A fresh (main, create, system) for a run of seconds; `a__b=1` changes `main.a.b`."""
    main = EasyDict(
        exp_name="exp",
        env={
            "lengths": LENGTHS,
            "collector_env_num": 2,
            "evaluator_env_num": 2,
            "collector_episode_num": 4,
            "evaluator_episode_num": 1,
            "n_evaluator_episode": 2,
            "stop_value": 1000,
        },
        policy={
            "nstep": 1,
            "model": {"obs_shape": 3, "action_shape": 2, "encoder_hidden_size_list": [8, 8], "dueling": False},
            "learn": {"batch_size": 4},
            "collect": {
                "n_sample": 4,
                "collector": {"collector_num": 2, "flush_interval_s": 0, "update_policy_second": 0},
            },
            "other": {
                "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 1000},
                "replay_buffer": {"replay_buffer_size": 64},
                "commander": {"collector_task_space": 2, "eval_interval": 1000},
            },
        },
    )
    for path, value in changes.items():
        *sections, key = path.split("__")
        section = main
        for name in sections:
            section = section.setdefault(name, EasyDict())
        section[key] = value
    create = EasyDict(
        env={"type": env_type, "import_names": ["tests.entry.parallel_fakes"]},
        env_manager={"type": "base"},
        policy={"type": "failing_dqn", "import_names": ["tests.entry.parallel_fakes"]},
        comm_learner={"type": comm},
        comm_collector={"type": comm},
    )
    return main, create, EasyDict(system or {})
