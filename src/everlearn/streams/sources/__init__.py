"""Where rows come from: files and message brokers."""
