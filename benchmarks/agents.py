"""Ways to explore on three control tasks, and everlearn's own time a step.

    python benchmarks/agents.py [--quick]

Seeds 200 to 209 were not used for tuning. Sarsa(lambda) and a DQN on the same tasks, seeds and budget stand in table 5
of the reproduction: `everlearn reproduce figmn:table5`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from _page import parser, write_page

from everlearn.agents import TASKS, MixtureQAgent, episodes_of

SEEDS = range(200, 210)
BUDGET = 1000  # episodes after which a run is given up
EXPLORATIONS = ("greedy", "epsilon", "optimistic", "thompson")
WARM_EPISODES, TIMED_EPISODES = 120, 20
INTRODUCTION = f"""# Agents: ways to explore

Episodes before the first 100 whose mean return reaches the threshold (cart-pole 195 of 200 steps, mountain car -110,
acrobot -100): mean ± standard deviation and median over the runs that solved the task; in brackets solved/runs. The
environments are gymnasium's own, the seeds {SEEDS[0]} to {SEEDS[-1]}, which were not used for tuning; given up after
{BUDGET:,} episodes. Explored by the prior value alone (greedy, the default), by random actions, and by error margins of
the conditional mixture, added or drawn from; each beside the prior value. Sarsa(λ) and a DQN on the same tasks, seeds
and budget: table 5 of FIGMN in `docs/reproduction.md`."""
SETTINGS = """The settings of the tasks, all others being the defaults of `MixtureQAgent`:"""
STEPS = """everlearn's own CPU time a step of the environment, deciding and learning, once warm:"""


def start_of(task: str, exploration: str, seed: int) -> int | None:
    """Episodes before the task was solved; None if it was not."""
    agent = TASKS[task].agent(random_state=seed, exploration=exploration)
    _, start = episodes_of(task, agent, max_episodes=BUDGET, seed=seed)
    print(task, exploration, seed, start, flush=True)
    return start


def cell(starts: Sequence[int | None]) -> str:
    """Mean, spread and median of the runs that solved a task, and how many they are."""
    solved = [start for start in starts if start is not None]
    spread = f" ± {np.std(solved, ddof=1):.1f}, median {np.median(solved):.0f}" if len(solved) > 1 else ""
    return f"{np.mean(solved):.1f}{spread} ({len(solved)}/{len(starts)})" if solved else f"- (0/{len(starts)})"


def recorded_episodes(env: Any, agent: MixtureQAgent) -> list[list[Any]]:
    """Observations of episodes in which a trained agent acts, three actions in ten at random."""
    rng, episodes = np.random.default_rng(0), []
    for seed in range(TIMED_EPISODES):
        observation, _ = env.reset(seed=seed)
        episode, ended = [observation], False
        while not ended:
            explores = rng.random() < 0.3
            action = rng.integers(agent.n_actions_) if explores else agent.predict([episode[-1]])[0]
            observation, _, terminated, truncated, _ = env.step(int(action))
            episode.append(observation)
            ended = terminated or truncated
        episodes.append(episode)
    return episodes


def step_cost(task: str) -> tuple[float, int]:
    """Microseconds of act and observe, by replaying episodes to a warm agent without the environment; components."""
    agent = TASKS[task].agent(random_state=0)
    with TASKS[task].make() as env:
        agent.train(env, WARM_EPISODES, seed=0)
        episodes = recorded_episodes(env, agent)
    times = []
    for episode in episodes:
        began = time.process_time()
        for t in range(len(episode) - 1):
            agent.act(episode[t])
            agent.observe(-1.0, episode[t + 1], terminated=t == len(episode) - 2)
        times.append((time.process_time() - began) / (len(episode) - 1))
    return 1e6 * float(np.median(times)), agent.n_components_


def page(starts: dict[tuple[str, str], list[int | None]], costs: dict[str, tuple[float, int]]) -> str:
    """The page as Markdown."""
    lines = [INTRODUCTION, "", f"| task | {' | '.join(EXPLORATIONS)} |", f"|---{'|---' * len(EXPLORATIONS)}|"]
    for task in costs:
        lines.append(f"| {task} | {' | '.join(cell(starts.get((task, way), [])) for way in EXPLORATIONS)} |")
    lines += ["", SETTINGS, "", "| task | action repeat | units of the observations | gamma | beta |"]
    lines.append("|---|---|---|---|---|")
    for task in costs:
        agent = TASKS[task].agent()
        lines.append(f"| {task} | {agent.repeat} | {agent.scale} | {agent.gamma} | {agent.beta} |")
    lines += ["", STEPS, "", "| task | microseconds a step | components |", "|---|---|---|"]
    lines += [f"| {task} | {microseconds:.0f} | {K} |" for task, (microseconds, K) in costs.items()]
    return "\n".join(lines)


def main() -> None:
    """Run all tasks, or one once."""
    options = parser(__doc__).parse_args()
    tasks = ["mountain-car"] if options.quick else list(TASKS)
    ways, seeds = (EXPLORATIONS[:1], SEEDS[:1]) if options.quick else (EXPLORATIONS, SEEDS)
    starts = {(task, way): [start_of(task, way, seed) for seed in seeds] for task in tasks for way in ways}
    write_page("agents", page(starts, {task: step_cost(task) for task in tasks}), quick=options.quick)


if __name__ == "__main__":
    main()
