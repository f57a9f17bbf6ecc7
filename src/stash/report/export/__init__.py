"""Profiles for other tools: tables, and the trackers that people keep their experiments in."""
