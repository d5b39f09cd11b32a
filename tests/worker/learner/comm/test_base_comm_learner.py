"""What every comm learner has."""

from easydict import EasyDict

from ding.utils.registry_factory import COMM_LEARNER_REGISTRY
from ding.worker.learner import BaseCommLearner, create_comm_learner
from ding.worker.learner.comm.learner_task import SendLearnInfoHook, SendPolicyHook
from tests.worker.learner.comm.workers import POLICIES, task_info


@COMM_LEARNER_REGISTRY.register("own_learner_test", force_overwrite=True)
class Own(BaseCommLearner):
    """Gives samples that count up, and keeps what is sent."""

    def __init__(self, cfg):
        super().__init__(cfg)
        self.policies, self.infos, self.asked = [], [], 0

    def send_policy(self, state_dict):
        self.policies.append(state_dict["iter"])

    def send_learn_info(self, learn_info):
        self.infos.append(learn_info["learner_step"])

    def get_data(self, batch_size):
        self.asked += 1
        return [{"obs": self.asked} for _ in range(batch_size)]

    @property
    def hooks4call(self):
        return [SendPolicyHook("p", 100, position="after_run"), SendLearnInfoHook("i", 100, position="after_iter")]


def test_a_class_of_ones_own_is_built_by_its_type_and_makes_learners_that_call_it():
    comm = create_comm_learner(EasyDict(type="own_learner_test", import_names=[]))
    learner = comm._create_learner(task_info(learner={"train_iterations": 2}))
    for hook in comm.hooks4call:
        learner.register_hook(hook)
    learner.start()
    learner.close()
    assert (comm.policies, comm.infos) == ([2], [0, 1])
    assert POLICIES[0].batches == [[{"obs": 1}, {"obs": 1}], [{"obs": 2}, {"obs": 2}]]
    assert (learner.rank, learner.world_size, learner.exp_name) == (0, 1, "exp")
