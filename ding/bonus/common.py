"""The results of a training and of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class TrainingReturn:
    """What a training returns.

    Attributes:
        wandb_url: the page of the run at Weights & Biases.
    """

    wandb_url: str


@dataclass
class EvalReturn:
    """What an evaluation returns.

    Attributes:
        eval_value: the mean of the returns.
        eval_value_std: their standard deviation.
    """

    eval_value: np.float32
    eval_value_std: np.float32
