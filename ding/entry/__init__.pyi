# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.entry.application_entry import collect_demo_data as collect_demo_data
from ding.entry.application_entry import collect_episodic_demo_data as collect_episodic_demo_data
from ding.entry.application_entry import episode_to_transitions as episode_to_transitions
from ding.entry.application_entry import episode_to_transitions_filter as episode_to_transitions_filter
from ding.entry.application_entry import eval as eval
from ding.entry.parallel_entry import parallel_pipeline as parallel_pipeline
from ding.entry.serial_entry import serial_pipeline as serial_pipeline
from ding.entry.serial_entry import serial_pipeline_onpolicy as serial_pipeline_onpolicy
from ding.entry.serial_entry_dqfd import serial_pipeline_dqfd as serial_pipeline_dqfd
from ding.entry.serial_entry_dqfd import serial_pipeline_sqil as serial_pipeline_sqil
from ding.entry.serial_entry_offline import serial_pipeline_bc as serial_pipeline_bc
from ding.entry.serial_entry_offline import serial_pipeline_offline as serial_pipeline_offline
from ding.entry.trained import load_policy as load_policy
from ding.entry.training import Training as Training
from ding.entry.training import evaluate_run as evaluate_run
from ding.entry.training import train as train
from ding.entry.tuning import Tuning as Tuning
from ding.entry.tuning import tune as tune
from ding.entry.utils import mark_not_expert as mark_not_expert
from ding.entry.utils import mark_warm_up as mark_warm_up
from ding.entry.utils import random_collect as random_collect
