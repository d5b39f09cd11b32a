"""Packaging of the distribution `ding-worker` (import name `ding`)."""

import pathlib
import re

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "([^"]+)"', (ROOT / "ding" / "__init__.py").read_text(encoding="utf-8")).group(1)
# From this version on, a Ray that is started asks for a token.
RAY = "ray>=2.59,<3"

setup(
    name="ding-worker",
    version=VERSION,
    description="The worker layer of DI-engine, rebuilt: collectors, evaluators, learner, replay buffers",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    project_urls={
        "Documented interfaces": "https://di-engine-docs.readthedocs.io/en/latest/",
        "DI-engine": "https://github.com/opendilab/DI-engine",
    },
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords=["reinforcement learning", "DI-engine", "PyTorch", "replay buffer", "self-play", "distributed training"],
    packages=find_packages(include=["ding", "ding.*"]),
    package_data={
        "": ["*.pyi"],
        "ding": ["py.typed"],
        "ding.recipes": ["*.json"],
        "ding.worker.coordinator": ["*.html"],
    },
    entry_points={"console_scripts": ["ding = ding.entry.cli:cli"]},
    python_requires=">=3.10",
    install_requires=[
        "torch>=2.10",
        "numpy>=1.26,<3",
        "easydict>=1.13,<2",
        "gymnasium>=1.0,<2",
        "flask>=3,<4",
        "tornado>=6.5,<7",
        "cryptography>=42",
        "requests>=2.31,<3",
        "urllib3>=2.2,<3",
        "tensorboardX>=2.6.2,<3",
        "pyyaml>=6,<7",
        "click>=8.1.3,<9",
        "tabulate>=0.9,<1",
        "cloudpickle>=3.0,<4",
        "lz4>=4.0,<5",
        "msgpack>=1.0.5,<2",
        "tqdm>=4.65,<5",
        "psutil>=5.9,<8",
    ],
    extras_require={
        # Without EnvPool, which takes 740 MB with its assets.
        "test": [
            "pytest>=8",
            "pytest-cov>=5",
            "pytest-xdist>=3.6",
            "trueskill>=0.4.5",
            "pettingzoo>=1.24",
            "h5py>=3.8",
            "matplotlib>=3.8",
            "minatar>=1.0.15",
            "opencv-python-headless>=4.9",
            # What gymnasium[box2d,mujoco] needs, by name: its older versions compile Box2D.
            "box2d>=2.3.10",
            "pygame-ce>=2.2",
            "mujoco>=3.1",
            "imageio>=2.14.1",
            "hypothesis>=6.100",
            "ruff>=0.9",
            "mypy>=1.14",
            "pylint>=3.3",
            "types-PyYAML",
            "types-requests",
            "types-tabulate",
            "types-tqdm",
            RAY,
        ],
        "mutants": ["cosmic-ray>=8.4"],
        "docs": ["mkdocs>=1.6,<2", "mkdocs-material>=9.5,<10", "mkdocstrings[python]>=0.26"],
        "browser": ["selenium>=4.20"],
        "bench": ["stable-baselines3>=2.4", "tianshou>=2.0", "cpprb>=11.0"],
        "learning": [
            "stable-baselines3>=2.4",
            "gymnasium[box2d,mujoco]",
            "minatar>=1.0.15",
            "envpool>=1.2",
            "rliable>=1.2",
            "pandas<3",  # rliable needs arch, whose version 7 does not import with pandas 3
            "matplotlib>=3.8",
        ],
        "box2d": ["gymnasium[box2d]"],
        "mujoco": ["gymnasium[mujoco]"],
        "minatar": ["minatar>=1.0.15"],
        "export": ["onnx>=1.16", "onnxruntime>=1.18"],
        "tune": ["optuna>=4.0"],
        "plot": ["matplotlib>=3.8"],
        "tensorboard": ["tensorboard>=2.15"],
        "atari": ["opencv-python-headless>=4.9"],
        "league": ["trueskill>=0.4.5"],
        "video": ["moviepy>=1.0", "pygame-ce>=2.2"],  # not pygame, which has the same files
        "wandb": ["wandb>=0.17"],
        "mlflow": ["mlflow>=2.10"],
        "envpool": ["envpool>=1.2"],
        "hdf5": ["h5py>=3.8"],
        "minari": ["minari[hdf5]>=0.5"],
        "pettingzoo": ["pettingzoo>=1.24"],
        "ray": [RAY],
        "rllib": ["ray[rllib]>=2.59,<3"],  # for the benchmark `solved`
        "tree": ["DI-treetensor>=0.4"],
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
