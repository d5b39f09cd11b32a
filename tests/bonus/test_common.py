from dataclasses import asdict, fields

import numpy as np

from ding.bonus.agent import EvalReturn, TrainingReturn


def test_results_have_the_documented_fields():
    assert asdict(TrainingReturn(wandb_url="https://wandb.ai/a/b")) == {"wandb_url": "https://wandb.ai/a/b"}
    assert [field.name for field in fields(EvalReturn)] == ["eval_value", "eval_value_std"]
    result = EvalReturn(eval_value=np.float32(1.5), eval_value_std=np.float32(0.5))
    assert (result.eval_value, result.eval_value_std) == (1.5, 0.5)
