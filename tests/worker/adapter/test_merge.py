import pytest

from ding.worker import LearnerAggregator
from ding.worker.learner.comm.learner_group import merge_info


@pytest.mark.parametrize("scalars", [[None, None], [1, 2], ["a", "b"], [1.5, None, "c", True]])
def test_scalars_become_the_list_of_them(scalars):
    merged = merge_info(scalars)
    assert merged == scalars and merged is not scalars


def test_lists_and_tuples_are_put_one_after_the_other():
    assert merge_info([[1], [], [2, 3]]) == [1, 2, 3]
    assert merge_info([(1,), (2,)]) == (1, 2)


def test_dicts_are_merged_by_key_and_some_keys_are_those_of_the_first():
    first = {"learner_step": 4, "buffer_id": "b", "task_id": "t", "learner_done": False, "loss": 0.5}
    second = {"learner_step": 5, "buffer_id": "c", "task_id": "u", "learner_done": True, "loss": 1.5}
    infos = [{**own, "priority_info": {"priority": [i, i], "n": i}} for i, own in enumerate((first, second))]
    assert merge_info(infos) == {**first, "loss": [0.5, 1.5], "priority_info": {"priority": [0, 0, 1, 1], "n": [0, 1]}}


def test_keys_that_only_some_have_are_kept():
    assert merge_info([{}, {"priority": [1]}, {"priority": [2], "learner_step": 3}]) == {
        "priority": [1, 2],
        "learner_step": 3,
    }


@pytest.mark.parametrize("infos", [[object()], [{1}, {2}], [1, [2]], [{"a": 1}, [1]], [(1,), [1]], [{"a": 1}, 1]])
def test_what_cannot_be_merged_is_a_type_error(infos):
    with pytest.raises(TypeError, match="cannot be merged"):
        merge_info(infos)


def test_nothing_cannot_be_merged():
    with pytest.raises(ValueError, match="nothing to merge"):
        merge_info([])


def test_the_aggregator_has_it_as_a_static_method():
    assert LearnerAggregator.merge_info([1, 2]) == [1, 2]
