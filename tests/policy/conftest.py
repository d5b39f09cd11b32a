"""What several tests of policies need."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist


@pytest.fixture
def lone_group(tmp_path: Path) -> Iterator[None]:
    """A process group of this process only, on the CPU."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()
