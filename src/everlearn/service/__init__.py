"""The HTTP service and the live page."""
