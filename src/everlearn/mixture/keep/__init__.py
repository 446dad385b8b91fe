"""How many components there are: the structure search on the reservoir, its schedule, and what is carried over."""
