"""The short way, word by word, as somebody walks it who has just installed the package: `python tests/newcomer.py`.

In an empty folder, with the command `ding` and this Python alone, it trains on envs and with a network of one's own,
uses, loads, stops and resumes trainings, sweeps, tunes and exports, and makes the mistakes that newcomers make. It
prints a line for each step, with its seconds, and ends with the output of the first that does not do what the
documentation says.
"""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Sequence

LIMIT_S = 300
# What a newcomer writes into the folder.
FILES = {
    "corridor.py": '''
        import os
        import sys

        import gymnasium
        import numpy as np


        class Corridor(gymnasium.Env):
            """Walk to the right end of a corridor; each step costs a little."""

            observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
            action_space = gymnasium.spaces.Discrete(2)

            def __init__(self, longest=8):
                self.longest = longest

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.place, self.goal, self.steps = 0, int(self.np_random.integers(3, self.longest)), 0
                return self._obs(), {}

            def step(self, action):
                self.place = max(0, self.place + (1 if action == 1 else -1))
                self.steps += 1
                is_there = self.place == self.goal
                return self._obs(), 1.0 if is_there else -0.05, is_there, self.steps == 50, {}

            def _obs(self):
                return np.array([self.place / 8, self.goal / 8], np.float32)


        class Dark(Corridor):
            """Shows the place and the goal in a dict."""

            observation_space = gymnasium.spaces.Dict(
                place=gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32),
                goal=gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32),
            )

            def _obs(self):
                place, goal = super()._obs()
                return {"place": np.array([place], np.float32), "goal": np.array([goal], np.float32)}


        class Tenfold(gymnasium.RewardWrapper):
            def reward(self, reward):
                return 10 * reward


        class Loud(gymnasium.Wrapper):
            """Tells its first step."""

            is_told = False

            def step(self, action):
                if not Loud.is_told:
                    Loud.is_told = True
                    print("the first evaluation has begun", file=sys.stderr, flush=True)
                    if "WAIT_FOR" in os.environ:
                        open(os.environ["WAIT_FOR"]).close()
                return self.env.step(action)
        ''',
    "first.py": """
        from corridor import Corridor
        from ding import train

        training = train("dqn", Corridor, env_steps=3000, seed=0, folder="corridor_run", learning_rate=1e-3)
        obs, _ = Corridor().reset(seed=1)
        print("action", training.predict(obs))
        print("returns", training.evaluate(20).returns)
        print("result", training.result["env_step"], training.result["eval_value"])
        """,
    "shapes.py": '''
        import gymnasium
        import numpy as np
        from gymnasium.spaces import Box, Dict, Discrete


        class Valve(gymnasium.Env):
            """Turn two valves, whose ranges differ, to what the observation shows; other actions are an error."""

            observation_space = Box(-1.0, 1.0, (1,), np.float32)
            action_space = Box(np.array([-0.2, 1.0], np.float32), np.array([0.1, 3.0], np.float32))

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.steps = 0
                return self._obs(), {}

            def step(self, action):
                assert self.action_space.contains(action), action
                share = (action - self.action_space.low) / (self.action_space.high - self.action_space.low)
                reward = 1.0 - float(abs(2 * share - 1 - self.wanted).mean())
                self.steps += 1
                return self._obs(), reward, False, self.steps == 10, {}

            def _obs(self):
                self.wanted = self.np_random.uniform(-1, 1)
                return np.array([self.wanted], np.float32)


        class Camera(gymnasium.Env):
            """One action in four is right: the image tells two of them, the other entry which of these it is."""

            observation_space = Dict(image=Box(0, 255, (20, 24, 3), np.uint8), bit=Box(0.0, 1.0, (1,), np.float32))
            action_space = Discrete(4)

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.steps = 0
                return self._obs(), {}

            def step(self, action):
                reward = float(action == 2 * self.side + self.bit)
                self.steps += 1
                return self._obs(), reward, False, self.steps == 10, {}

            def _obs(self):
                self.side, self.bit = map(int, self.np_random.integers(2, size=2))
                image = np.zeros((20, 24, 3), np.uint8)
                image[:, 12 * self.side : 12 * self.side + 12] = 255
                return {"image": image, "bit": np.array([self.bit], np.float32)}


        class Bits(gymnasium.Env):
            """Flip one bit in each step until they are those of the goal."""

            def __init__(self, bits=6):
                self.bits = bits
                self.action_space = Discrete(bits)
                names = ("observation", "achieved_goal", "desired_goal")
                self.observation_space = Dict({name: Box(0, 1, (bits,), np.float32) for name in names})

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.state, self.goal = self.np_random.integers(2, size=(2, self.bits)).astype(np.float32)
                self.steps = 0
                return self._obs(), {}

            def step(self, action):
                self.state[action] = 1 - self.state[action]
                self.steps += 1
                reward = float(self.compute_reward(self.state, self.goal, {}))
                is_there = bool(self.compute_terminated(self.state, self.goal, {}))
                return self._obs(), reward, is_there, self.steps == self.bits, {"is_success": is_there}

            def compute_reward(self, achieved_goal, desired_goal, info):
                return -(achieved_goal != desired_goal).any(axis=-1).astype(np.float32)

            def compute_terminated(self, achieved_goal, desired_goal, info):
                return (achieved_goal == desired_goal).all(axis=-1)

            def _obs(self):
                return {"observation": self.state, "achieved_goal": self.state, "desired_goal": self.goal}
        ''',
    "networks.py": '''
        from torch import nn


        class Values(nn.Module):
            """A value for each action."""

            def __init__(self, obs_shape, action_shape, width=16):
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(obs_shape, width), nn.Tanh(), nn.Linear(width, action_shape))

            def forward(self, obs):
                return {"logit": self.layers(obs)}
        ''',
    "own.py": """
        import shapes
        from corridor import Corridor
        from ding import train
        from networks import Values

        how = dict(seed=0, learning_rate=1e-3, num_envs=4)
        sac = dict(learning_starts=100, batch_size=32, n_sample=8, update_per_collect=8, net_arch=[32, 32])
        ppo = dict(n_steps=64, batch_size=64, gamma=0.0, encoder_hidden_size_list=[16, 32, 64])
        dqn = dict(update_per_collect=20, discount_factor=0.9, target_update_freq=50, net_arch=[64])
        trainings = [
            train("sac", shapes.Valve, env_steps=600, normalize=True, folder="valve_run", **sac, **how),
            train("ppo", shapes.Camera, env_steps=3072, folder="camera_run", **ppo, **how),
            train("dqn", Corridor, env_steps=3000, model=Values, width=32, folder="network_run", **how),
            train("dqn", (shapes.Bits, {"bits": 4}), env_steps=1000, her=True, folder="bits_run", **dqn, **how),
        ]
        print("success rate", trainings[-1].evaluate(20).success_rate)
        """,
    "again.py": """
        import numpy as np
        import torch
        from corridor import Corridor
        from ding.entry import Training
        from shapes import Bits, Camera, Valve


        def with_batch_axis(obs):
            return {key: part[None] for key, part in obs.items()} if isinstance(obs, dict) else obs[None]


        def as_tensors(obs):
            parts = obs if isinstance(obs, dict) else {"": obs}
            tensors = {key: torch.tensor(part) for key, part in parts.items()}
            return tensors if isinstance(obs, dict) else tensors[""]


        envs = {"valve_run": Valve(), "camera_run": Camera(), "network_run": Corridor(), "bits_run": Bits(4)}
        for folder, env in envs.items():
            training = Training.load(folder)
            exported = torch.jit.load(training.export())
            total = 0.0
            for episode in range(20):
                obs, _ = env.reset(seed=100 + episode)
                over = False
                while not over:
                    action, batch = training.predict(obs), with_batch_axis(obs)
                    np.testing.assert_allclose(training.predict(batch), action[None], atol=1e-5)
                    np.testing.assert_allclose(exported(as_tensors(batch)), action[None], atol=1e-5)
                    obs, reward, terminated, truncated, _ = env.step(action)
                    total, over = total + reward, terminated or truncated
            print(folder, total / 20)
        """,
    "later.py": """
        import sys

        import gymnasium
        from ding.entry import Training

        training = Training.load(sys.argv[1])
        env = gymnasium.make("CartPole-v1") if "CartPole" in sys.argv[1] else None
        if env is None:
            sys.path.append(sys.argv[2])
            from corridor import Corridor

            env = Corridor()
        total = 0.0
        for episode in range(5):
            obs, _ = env.reset(seed=episode)
            over = False
            while not over:
                obs, reward, terminated, truncated, _ = env.step(training.predict(obs))
                total, over = total + reward, terminated or truncated
        print("mean return", total / 5)
        """,
    "wrapped.py": """
        from corridor import Corridor, Tenfold
        from ding import train

        wrappers = {"env.wrappers": [Tenfold]}
        training = train("dqn", (Corridor, {"longest": 5}), env_steps=600, folder="wrapped_run", config=wrappers)
        """,
    "pictures.py": """
        import os

        from ding.entry import Training

        training = Training.load("cartpole_seed0")
        print("plot", training.plot())
        """,
}


class Failed(Exception):
    """A step has not done what the documentation says."""


class Newcomer:
    """Walks the steps in a folder, see `STEPS`."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        command = pathlib.Path(sys.executable).with_name("ding")
        self.ding = [str(command)] if command.exists() else [sys.executable, "-m", "ding.entry.cli"]
        self.environment = {**os.environ, "SDL_VIDEODRIVER": "dummy"}
        for name, text in FILES.items():
            (folder / name).write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")

    def run(self, *words: str, folder: str = ".", status: int = 0) -> str:
        """Run a program, whose output is returned; `ding` and `python` are those of this Python."""
        command = {"ding": self.ding, "python": [sys.executable]}[words[0]] + list(words[1:])
        done = subprocess.run(
            command, cwd=self.folder / folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        if done.returncode != status:
            raise Failed(f"{' '.join(words)}\nexits with {done.returncode}, not {status}:\n{done.stdout}")
        return done.stdout

    def refused(self, message: str, *words: str, status: int = 1) -> None:
        """Run a program that must say what is wrong in one line, without a traceback, and leave no folder."""
        before = set(os.listdir(self.folder))
        output = self.run(*words, status=status)
        last = output.strip().splitlines()[-1]
        if not re.search(message, last) or "Traceback" in output:
            raise Failed(f"{' '.join(words)}\ndoes not end with {message!r}:\n{output}")
        self.expect(set(os.listdir(self.folder)) == before, f"{' '.join(words)} leaves files", output)

    def expect(self, condition: object, what: str, output: str = "") -> None:
        if not condition:
            raise Failed(f"not so: {what}\n{output}")

    def has(self, output: str, *patterns: str) -> None:
        for pattern in patterns:
            self.expect(re.search(pattern, output), f"the output has {pattern!r}", output)

    def evaluations(self, run: str) -> list[tuple[int, list[float]]]:
        """Return the iteration and the returns of each evaluation of a run."""
        lines = (self.folder / run / "eval.jsonl").read_text(encoding="utf-8").splitlines()
        return [(record["train_iter"], record["returns"]) for record in map(json.loads, lines)]

    # The steps.

    def train_on_an_env_of_ones_own(self) -> None:
        output = self.run("python", "first.py")
        self.has(output, r"Training dqn on .*Corridor.* with seed 0\. Files: \./corridor_run", r"action [01]\n")
        self.has(output, r"Over: mean return 0\.\d+ after 3000 env steps", r"result 3000 0\.\d")
        returns = json.loads(re.search(r"returns (\[.*\])", output)[1])  # type: ignore[index]
        self.expect(len(returns) == 20 and min(returns) > 0.6, "it has learned to walk to the right", output)
        for name in ("eval.jsonl", "result.json", "total_config.py", "ckpt/ckpt_best.pth.tar", "metrics.jsonl", "log"):
            self.expect((self.folder / "corridor_run" / name).exists(), f"the run has {name}")

    def play_with_it_in_a_new_process_from_another_folder(self) -> None:
        (self.folder / "elsewhere").mkdir()
        output = self.run("python", "../later.py", "../corridor_run", "..", folder="elsewhere")
        self.has(output, r"mean return 0\.[6-9]")

    def train_two_seeds_at_the_same_time_by_the_command(self) -> None:
        words = (
            "train ppo CartPole-v1 --env-steps 8000 --seed 0 1 --jobs 2 --set learning_rate=1e-3 --exp-name cartpole"
        )
        output = self.run("ding", *words.split())
        self.has(output, "Recipe: ppo_classic_control", r"seed 0 \| Over: mean return", r"seed 1 \| Over: mean return")
        for seed in (0, 1):
            (first, _), *_, (last, returns) = self.evaluations(f"cartpole_seed{seed}")
            self.expect(first == 0 < last and sum(returns) / len(returns) > 50, f"seed {seed} has learned", output)

    def evaluate_and_list(self) -> None:
        output = self.run("ding", "eval", "cartpole_seed0", "--episodes", "3", "--seed", "7")
        self.has(output, r"mean return \d+\.\d, standard deviation .* over 3 episodes")
        self.has(self.run("ding", "state", "cartpole_seed1"), r"state_\d+\.zip .* end .* yes")
        self.has(self.run("ding", "list", "recipes"), r"ppo_classic_control +ppo +CartPole-v\*")
        self.has(self.run("ding", "list", "policy"), r"\bsac\b", r"\bppo\b")
        self.has(self.run("ding", "check-env", "corridor:Corridor"), "^ok ")

    def plot(self) -> None:
        output = self.run("ding", "plot", "cartpole_seed0", "cartpole_seed1", "-o", "curves.svg")
        self.has(output, r"cartpole +2 +\d+", r"curves\.svg is written")
        self.has(self.run("python", "pictures.py"), r"plot cartpole_seed0/curve\.png")
        self.expect((self.folder / "cartpole_seed0" / "curve.png").stat().st_size > 1000, "the plot is there")

    def record(self) -> None:
        self.has(self.run("ding", "record", "cartpole_seed0", "-o", "episode.gif"), r"episode\.gif: return \d+")

    def go_on_with_a_larger_budget(self) -> None:
        words = ["train", "dqn", "corridor:Corridor", "--seed", "0", "--exp-name", "longer"]
        self.run("ding", *words, "--env-steps", "300")
        output = self.run("ding", *words, "--env-steps", "600", "--resume")
        self.has(output, r"after 600 env steps")

    def stop_in_the_first_evaluation_and_resume(self) -> None:
        words = [
            *("train", "dqn", "corridor:Corridor", "--train-iter", "300", "--set", "eval_freq=100", "--seed", "3"),
            *("--set", "env.wrappers=['corridor:Loud']", "--exp-name"),
        ]  # fmt: skip
        pipe = self.folder / "go_on"
        os.mkfifo(pipe)
        environment = {**self.environment, "WAIT_FOR": str(pipe)}
        command = [*self.ding, *words, "stopped"]
        with subprocess.Popen(command, cwd=self.folder, env=environment, stderr=subprocess.PIPE, text=True) as training:
            assert training.stderr is not None
            lines = iter(training.stderr.readline, "")
            output = "".join(iter(lines.__next__, "the first evaluation has begun\n"))
            training.send_signal(signal.SIGTERM)
            pipe.write_text("")
            output += training.stderr.read()
            self.expect(training.wait(LIMIT_S) == 130, "it exits with 130", output)
        self.has(output, "received SIGTERM: saving a checkpoint, then leaving")
        self.has(self.run("ding", "state", "stopped"), r"SIGTERM +0 +\d+ .* yes")
        self.run("ding", *words, "stopped", "--resume")
        self.run("ding", *words, "whole")
        resumed, whole = self.evaluations("stopped"), self.evaluations("whole")
        self.expect(resumed == whole and len(whole) > 2, f"{resumed} is {whole}")

    def load_a_run_with_wrappers_elsewhere(self) -> None:
        self.run("python", "wrapped.py")
        output = self.run("ding", "eval", "../wrapped_run", "-n", "5", folder="elsewhere")
        mean = float(re.search(r"mean return (-?[\d.]+)", output)[1])  # type: ignore[index]
        self.expect(mean > 8, "rewards are ten times as large", output)
        output = self.run("python", "../later.py", "../wrapped_run", "..", folder="elsewhere")
        self.has(output, r"mean return 0\.\d")

    def export(self) -> None:
        self.has(self.run("ding", "export", "cartpole_seed0"), r"cartpole_seed0/policy\.pt is written")
        code = "import torch; print(torch.jit.load('cartpole_seed0/policy.pt')(torch.zeros(3, 4)).shape)"
        self.has(self.run("python", "-W", "ignore", "-c", code), r"torch\.Size\(\[3\]\)")

    def export_to_onnx(self) -> None:
        self.has(self.run("ding", "export", "cartpole_seed0", "-o", "policy.onnx"), r"policy\.onnx is written")

    def tune(self) -> None:
        words = "tune dqn corridor:Corridor --search learning_rate=1e-4:1e-2:log --search batch_size=32,64"
        output = self.run("ding", *words.split(), "--trials", "2", "--env-steps", "200", "--exp-name", "study")
        self.expect((self.folder / "study" / "best_config.py").exists(), "the best config is there", output)
        self.run("ding", "train", "study/best_config.py", "--train-iter", "5", "--exp-name", "tuned")

    def train_with_the_config_of_a_run(self) -> None:
        output = self.run("ding", "train", "corridor_run/total_config.py", "--train-iter", "5", "--exp-name", "again")
        self.has(output, r"Over: mean return .* after \d+ env steps, 5 iterations")
        self.has(self.run("ding", "show", "corridor_run/formatted_total_config.py", "policy.learn"), "learning_rate")

    def train_on_other_envs_and_with_a_network_of_ones_own(self) -> None:
        for env in ("Valve", "Camera", "Bits"):
            self.has(self.run("ding", "check-env", f"shapes:{env}"), "^ok ")
        output = self.run("python", "own.py")
        self.has(output, r"dqn on .*Bits.* with seed 0\. Files: \./bits_run", r"success rate (1\.0|0\.9)")

    def use_them_in_new_processes(self) -> None:
        output = self.run("python", "-W", "ignore", "again.py")
        for run, enough in (("valve_run", 8), ("camera_run", 9), ("network_run", 0.6), ("bits_run", -2)):
            self.expect(float(output.split(f"{run} ")[1].split()[0]) > enough, f"{run} has learned", output)
            evaluated = self.run("ding", "eval", run, "--episodes", "20", "--seed", "7")
            mean = float(re.search(r"mean return (-?[\d.]+)", evaluated)[1])  # type: ignore[index]
            self.expect(mean > enough, f"{run} has learned", evaluated)

    def go_on_with_them(self) -> None:
        for run in ("valve_run", "camera_run", "network_run", "bits_run"):
            before = json.loads((self.folder / run / "result.json").read_text(encoding="utf-8"))["env_step"]
            output = self.run("ding", "train", "--resume", run, "--env-steps", str(before + 20))
            after = int(re.search(r"Over: mean return .* after (\d+) env steps", output)[1])  # type: ignore[index]
            self.expect(after >= before + 20 and "does not resume exactly" not in output, f"{run} goes on", output)

    def make_mistakes(self) -> None:
        for message, words in (
            ("unknown type 'dqnn'; did you mean 'dqn'", "dqnn CartPole-v1 --env-steps 64"),
            ("nothing ends the training: give env_steps.*--env-steps", "dqn CartPole-v1"),
            ("Did you mean: `CartPole`", "dqn CartPol-v1 --env-steps 64"),
            ("has no 'Corridr'", "dqn corridor:Corridr --env-steps 64"),
            ("No module named 'coridor'", "dqn coridor:Corridor --env-steps 64"),
            ("'lerning_rate'; did you mean 'learning_rate'", "dqn CartPole-v1 --env-steps 64 --set lerning_rate=1"),
            (
                "policy.model.hidden_list is unknown to the model DQN; it knows .*encoder_hidden_size_list",
                "dqn CartPole-v1 --env-steps 64 --set policy.model.hidden_list=[8]",
            ),
            (
                r"policy.model.obs_shape = 2 does not fit .* Dict\('goal'",
                "dqn corridor:Dark --env-steps 64 --set policy.model.obs_shape=2",
            ),
            ("chooses discrete actions", "dqn Pendulum-v1 --env-steps 64"),
            ("real-valued actions", "sac CartPole-v1 --env-steps 64"),
        ):
            self.refused(message, "ding", "train", *words.split())
        self.refused("Directory 'nothing' does not exist", "ding", "eval", "nothing", status=2)
        self.refused("the folder 'elsewhere' contains no training", "ding", "eval", "elsewhere")
        code = "import corridor, ding; ding.train('dqn', lambda: corridor.Corridor(), env_steps=64)"
        output = self.run("python", "-c", code)
        self.has(output, r"cannot name .*<lambda>.* top level of a module", "Over: mean return")


# The steps, and the packages that they need.
STEPS: Sequence[tuple[Callable[[Newcomer], None], tuple[str, ...]]] = (
    (Newcomer.train_on_an_env_of_ones_own, ()),
    (Newcomer.play_with_it_in_a_new_process_from_another_folder, ()),
    (Newcomer.train_two_seeds_at_the_same_time_by_the_command, ()),
    (Newcomer.evaluate_and_list, ()),
    (Newcomer.plot, ("matplotlib",)),
    (Newcomer.record, ("moviepy", "pygame")),
    (Newcomer.go_on_with_a_larger_budget, ()),
    (Newcomer.stop_in_the_first_evaluation_and_resume, ()),
    (Newcomer.load_a_run_with_wrappers_elsewhere, ()),
    (Newcomer.train_with_the_config_of_a_run, ()),
    (Newcomer.export, ()),
    (Newcomer.export_to_onnx, ("onnx",)),
    (Newcomer.train_on_other_envs_and_with_a_network_of_ones_own, ()),
    (Newcomer.use_them_in_new_processes, ()),
    (Newcomer.go_on_with_them, ()),
    (Newcomer.tune, ("optuna",)),
    (Newcomer.make_mistakes, ()),
)


def walk(folder: pathlib.Path) -> None:
    """Take all steps in an empty folder.

    Raises:
        Failed: a step has not done what the documentation says.
    """
    newcomer, start_s = Newcomer(folder), time.perf_counter()
    for step, packages in STEPS:
        name = step.__name__.replace("_", " ").replace("ones own", "one's own")
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        if missing:
            print(f"skip         {name}: needs {', '.join(missing)}", flush=True)
            continue
        began_s = time.perf_counter()
        step(newcomer)
        print(f"ok  {time.perf_counter() - began_s:6.1f} s {name}", flush=True)
    print(f"all {time.perf_counter() - start_s:6.1f} s")


def main() -> int:
    folder = tempfile.mkdtemp(prefix="newcomer_")
    try:
        walk(pathlib.Path(folder))
    except Failed as e:
        print(f"FAIL {e}\nThe files are in {folder}.")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
