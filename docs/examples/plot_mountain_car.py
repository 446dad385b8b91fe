"""
An agent with a mixture for a memory
====================================

A car in a valley is too weak to climb the hill on the right. It has to find out, by trial and error, that the way up
leads through the opposite slope. The agent is told its position and speed, and gets a reward of -1 for each step until
it is out.
"""

# %%
# `TASKS` has three classical tasks with settings that solve them; `make` gives gymnasium's environment. The agent
# starts with nothing, and learns from each episode when it ends.

import numpy as np
import plotly.graph_objects as go

from everlearn.agents import TASKS

task = TASKS["mountain-car"]
env = task.make()
agent = task.agent(random_state=1)
returns = agent.train(env, 250, seed=1)
print("mean return of episodes 1-20, 21-50, 201-250:", [round(returns[s].mean()) for s in np.s_[:20, 20:50, 200:250]])
print(f"{agent.n_components_} components, {agent.n_actions_} actions")

# %%
# An episode that fails takes 200 steps. At first the car is where nothing is known, and there every action is worth
# what the best imaginable reward would bring: the agent seeks such states, and so climbs a little higher each time.

figure = go.Figure(go.Scatter(y=returns, mode="markers", marker_size=5))
figure.update_layout(xaxis_title="episode", yaxis_title="sum of rewards", height=320)
figure

# %%
# What it has learned can be asked for any state: the value of each action, and how sure the memory is of it. Drawn over
# position and speed the best value shows the way: a spiral out of the valley. Steps to the goal, discounted, are
# the value's negative.

position, speed = np.linspace(-1.2, 0.55, 80), np.linspace(-0.07, 0.07, 80)
grid = np.stack(np.meshgrid(position, speed), axis=-1).reshape(-1, 2)
values, std = agent.values(grid, return_std=True)
best = values.argmax(axis=1)


def over_the_valley(heights, title):
    """A surface over position and speed."""
    surface = go.Surface(x=position, y=speed, z=heights.reshape(80, 80), colorscale="Viridis")
    figure = go.Figure(surface)
    figure.update_layout(
        title=title, scene={"xaxis_title": "position", "yaxis_title": "speed", "zaxis_title": ""}, height=560
    )
    return figure


over_the_valley(-values.max(axis=1), "discounted steps to the goal")

# %%
# The margins are small along the ways that the car has taken, and wide where it has never been.

figure = go.Figure(
    go.Heatmap(x=position, y=speed, z=std[np.arange(len(std)), best].reshape(80, 80), colorscale="Blues")
)
figure.update_layout(title="standard error of the best value", xaxis_title="position", yaxis_title="speed", height=420)
figure

# %%
# The policy: push left, do nothing, or push right. Where the car is slow in the valley it goes the way it is moving.

figure = go.Figure(go.Heatmap(x=position, y=speed, z=best.reshape(80, 80), colorscale="RdBu", zmin=0, zmax=2))
figure.update_layout(title="action: 0 left, 1 none, 2 right", xaxis_title="position", yaxis_title="speed", height=420)
figure

# %%
# The agent is a model like any other: `save` and `everlearn.load` keep it, in the middle of an episode if need be, and
# its memory is a mixture that can be asked anything, here in which state every action is worth -50.

mixture = agent.mixture()
print(mixture.predict_columns([[np.nan, np.nan, -50.0, -50.0, -50.0]], [0, 1]).round(2))
print("mean return without exploring:", agent.evaluate(env, 20, seed=1).mean())
