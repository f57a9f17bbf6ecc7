"""Profiles and the catalog to advice: what to rent, what to change, how to share a machine."""
