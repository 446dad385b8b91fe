"""How much of the past stays, and in how many components."""
