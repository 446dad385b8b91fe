"""The fast incremental Gaussian mixture network (FIGMN) of Pinto and Engel."""
