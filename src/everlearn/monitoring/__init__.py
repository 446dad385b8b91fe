"""What watches any model while it learns: change detection, event log, reservoir."""
