"""The return values of training and evaluation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class TrainingReturn:
    """The result of a training run.

    Attributes:
        wandb_url: URL of the run at Weights & Biases.
    """

    wandb_url: str


@dataclass
class EvalReturn:
    """The result of an evaluation.

    Attributes:
        eval_value: Mean of the episode returns.
        eval_value_std: Standard deviation of the episode returns.
    """

    eval_value: np.float32
    eval_value_std: np.float32
