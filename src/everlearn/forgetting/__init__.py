"""How much of the past stays: banks of models with different memories."""
