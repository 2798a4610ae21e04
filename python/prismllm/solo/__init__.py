"""Ranks that run alone: which of them are alike, so that one stands for its class. Imports no torch."""
