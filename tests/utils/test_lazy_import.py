import subprocess
import sys

import pytest

from ding.utils.import_helper import lazy_names


def test_a_name_is_that_of_its_module():
    find = lazy_names("package", {"lazy_names": "ding.utils.import_helper"})
    assert find("lazy_names") is lazy_names


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'package' has no attribute 'other'"):
        lazy_names("package", {})("other")


def test_what_parallel_training_is_made_of_loads_when_it_is_first_used():
    code = (
        "import sys, ding.worker\n"
        "assert not any(name.startswith('ding.interaction') for name in sys.modules)\n"
        "from ding.worker import Coordinator, FlaskFileSystemCollector, ZerglingParallelCollector\n"
        "assert 'ding.interaction' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
