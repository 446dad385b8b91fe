"""Episodes to solve three control tasks, and everlearn's own time a step, beside Sarsa(lambda) and a DQN.

    python benchmarks/agents.py [--folder FOLDER] [--quick]

Seeds 200 to 209 were not used for tuning. `--folder` keeps one JSON file a run: a run that was interrupted goes on.
"""

import json
import tempfile
import time
from pathlib import Path

import numpy as np
from _page import parser, write_page

from everlearn.agents import TASKS, comparison, episodes_of
from everlearn.errors import MissingExtraError

SEEDS = range(200, 210)
HEADER = "| task | printed (FIGMN) | mixture | mixture, one set of settings | Sarsa(lambda), tile coding | DQN |"
INTRODUCTION = """# Agents: episodes to solve

Episodes before the first 100 whose mean return reaches the threshold (cart-pole 195 of 200 steps, mountain car -110,
acrobot -100): mean ± standard deviation and median over the runs that solved the task; in brackets solved/runs. The
environments are gymnasium's own, the seeds 200 to 209, which were not used for tuning; given up after 1000
episodes. The DQN has settings from the literature (PyTorch's tutorial on the cart-pole, RL Baselines3 Zoo on the
others). Acrobot has 3 actions and 6 observations here, 4 and raw angles in the paper."""
ONE_SET = """One set: the defaults of `MixtureQAgent`, with only the units of the observations and the action repeat of
the task. The settings of the tasks differ from it on the cart-pole alone (gamma and beta)."""
EXPLORATIONS = ("greedy", "epsilon", "optimistic", "thompson")
EXPLORING = """The ways to explore, with the settings of the tasks, over the same seeds: the prior value alone
(the default, above), random actions, and error margins of the conditional mixture, added or drawn from; each beside
the prior value."""
PRINTED = {"cart-pole": "108.8", "mountain-car": "403.8", "acrobot": "301.6"}


def run_all(folder, learners, tasks, seeds=SEEDS):
    for learner in learners:
        for task in tasks:
            for seed in seeds:
                path = folder / f"{learner.replace(' ', '-')}_{task}_{seed}.json"
                if not path.exists():
                    outcome = comparison.run(learner, task, seed, max_episodes=1000)
                    path.write_text(json.dumps(outcome._asdict()))
                    print(learner, task, seed, outcome, flush=True)


def run_explorations(folder, tasks):
    for exploration in EXPLORATIONS[1:]:
        for task in tasks:
            for seed in SEEDS:
                path = folder / f"{exploration}_{task}_{seed}.json"
                if not path.exists():
                    agent = TASKS[task].agent(random_state=seed, exploration=exploration)
                    returns, start = episodes_of(task, agent, seed=seed)
                    path.write_text(json.dumps({"start": start, "episodes": len(returns)}))
                    print(exploration, task, seed, start, flush=True)


def time_steps(folder, tasks):
    """CPU time of act and observe, by replaying recorded episodes to a warm agent, without the environment."""
    found = {}
    for task in tasks:
        chosen = TASKS[task]
        agent = chosen.agent(random_state=0)
        with chosen.make() as env:
            agent.train(env, 120, seed=0)
            rng, episodes = np.random.default_rng(0), []
            for seed in range(20):
                observation, _ = env.reset(seed=seed)
                episode, ended = [observation], False
                while not ended:
                    explore = rng.random() < 0.3
                    action = int(rng.integers(agent.n_actions_)) if explore else int(agent.predict([episode[-1]])[0])
                    observation, _, terminated, truncated, _ = env.step(action)
                    episode.append(observation)
                    ended = terminated or truncated
                episodes.append(episode)
        times = []
        for episode in episodes:
            begun = time.process_time()
            for t in range(len(episode) - 1):
                agent.act(episode[t])
                agent.observe(-1.0, episode[t + 1], terminated=t == len(episode) - 2)
            times.append((time.process_time() - begun) / (len(episode) - 1))
        found[task] = {"microseconds": 1e6 * float(np.median(times)), "components": agent.n_components_}
        print(task, found[task], flush=True)
    (folder / "steps.json").write_text(json.dumps(found))


def cell(folder, learner, task):
    paths = sorted(folder.glob(f"{learner.replace(' ', '-')}_{task}_*.json"))
    runs = [json.loads(path.read_text()) for path in paths]
    starts = [run["start"] for run in runs if run["start"] is not None]
    if not runs:
        return "-"
    spread = f" ± {np.std(starts, ddof=1):.1f}, median {np.median(starts):.0f}" if len(starts) > 1 else ""
    mean = f"{np.mean(starts):.1f}" if starts else "-"
    return f"{mean}{spread} ({len(starts)}/{len(runs)})"


def table(folder):
    lines = [INTRODUCTION, "", HEADER, "|---|---|---|---|---|---|"]
    for task in TASKS:
        cells = " | ".join(cell(folder, learner, task) for learner in comparison.LEARNERS)
        lines.append(f"| {task} | {PRINTED[task]} | {cells} |")
    lines += [
        "",
        ONE_SET,
        "",
        "| task | action repeat | units of the observations | gamma | beta |",
        "|---|---|---|---|---|",
    ]
    for task, chosen in TASKS.items():
        agent = chosen.agent()
        lines.append(f"| {task} | {agent.repeat} | {agent.scale} | {agent.gamma} | {agent.beta} |")
    if any(folder.glob("thompson_*.json")):
        lines += ["", EXPLORING, "", f"| task | {' | '.join(EXPLORATIONS)} |", "|---|---|---|---|---|"]
        for task in TASKS:
            cells = [cell(folder, name, task) for name in ("mixture", *EXPLORATIONS[1:])]
            lines.append(f"| {task} | {' | '.join(cells)} |")
    steps = folder / "steps.json"
    if steps.exists():
        lines += ["", "everlearn's own CPU time a step of the environment, deciding and learning, once warm:", ""]
        lines += ["| task | microseconds a step | components |", "|---|---|---|"]
        for task, found in json.loads(steps.read_text()).items():
            lines.append(f"| {task} | {found['microseconds']:.0f} | {found['components']} |")
    return "\n".join(lines)


def main():
    made = parser(__doc__)
    made.add_argument("--folder", type=Path, help="where runs are kept")
    options = made.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        learners, tasks = (("mixture",), ["mountain-car"]) if options.quick else (comparison.LEARNERS, list(TASKS))
        for learner in learners:
            try:
                run_all(folder, [learner], tasks, SEEDS[:1] if options.quick else SEEDS)
            except MissingExtraError as error:
                print(f"{learner} is left out: {error}")
        if not options.quick:
            run_explorations(folder, tasks)
        time_steps(folder, tasks)
        write_page("agents", table(folder), quick=options.quick)


if __name__ == "__main__":
    main()
