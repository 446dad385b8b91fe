"""What is run to prove a claim: the papers' tables and figures, and comparisons with peers."""
