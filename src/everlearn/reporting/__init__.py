"""Figures, tables and HTML for reports and the live page."""
