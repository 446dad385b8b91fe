"""Pure mathematics: states in, states out."""
