"""Agents that learn by trial and error, with a mixture as their memory; playing needs the extra `rl`.

References
----------
R. C. Pinto and P. M. Engel, "Scalable and incremental learning of Gaussian mixture models", section 4.1.
"""

from everlearn.agents.q_agent import MixtureQAgent
from everlearn.agents.rollout import episodes_to_solve, play
from everlearn.agents.tasks import TASKS, Task, episodes_of

__all__ = ["TASKS", "MixtureQAgent", "Task", "episodes_of", "episodes_to_solve", "play"]
