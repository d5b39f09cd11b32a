# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.worker.adapter.learner_aggregator import LearnerAggregator as LearnerAggregator
