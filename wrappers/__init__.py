"""Wrappers, one a file. Nothing in here knows a particular world."""

from dyna_gym.wrappers.abstract_state import AbstractStateWrapper
from dyna_gym.wrappers.discrete import DiscreteActions
from dyna_gym.wrappers.prompt import PromptWrapper
from dyna_gym.wrappers.reasoning_action import ReasoningActionWrapper
from dyna_gym.wrappers.record import RecordTrajectories
from dyna_gym.wrappers.resim_search import ReSimSearchWrapper
from dyna_gym.wrappers.retry import RetryFailedEpisodes
from dyna_gym.wrappers.rewards import OutcomeReward, SuccessReward
from dyna_gym.wrappers.sim_rollout import SimRolloutWrapper
from dyna_gym.wrappers.stack import make_agent_env
from dyna_gym.wrappers.time_limit import TaskTimeLimit

__all__ = [
    "AbstractStateWrapper",
    "DiscreteActions",
    "OutcomeReward",
    "PromptWrapper",
    "ReSimSearchWrapper",
    "ReasoningActionWrapper",
    "RecordTrajectories",
    "RetryFailedEpisodes",
    "SimRolloutWrapper",
    "SuccessReward",
    "TaskTimeLimit",
    "make_agent_env",
]
